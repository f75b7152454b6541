"""Why a step was slow and what a run was worth: logs, metrics, traces, alarms."""

from runtime.telemetry.config import TelemetryConfig
from runtime.telemetry.telemetry import Telemetry

__all__ = ["Telemetry", "TelemetryConfig"]
