"""Why a step was slow and what a run was worth: logs, metrics, traces, alarms."""
