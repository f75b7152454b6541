"""Stopping on time: signals, deadlines, and the step at which all ranks stop together."""
