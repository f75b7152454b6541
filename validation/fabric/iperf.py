"""iperf3: its command lines, and what it says. Pure."""

import json
from math import isfinite

TOOL = "iperf3"
SECONDS = 2
"""How long a test sends."""
EARLY = "Connection refused"
"""What the client says while nobody listens."""


def server(address: str, port: str) -> list[str]:
    """Serves one test."""
    return [TOOL, "-s", "-1", "-B", address, "-p", port]


def client(address: str, port: str, own: str) -> list[str]:
    """Sends and receives at once."""
    return [TOOL, "-c", address, "-B", own, "-p", port, "-t", str(SECONDS), "-J", "--bidir"]


def read(output: bytes, _: bytes = b"") -> tuple[float | None, str]:
    """Gb/s of the worse direction as the receivers counted it, or none and why."""
    try:
        said = json.loads(output)
        if error := said.get("error"):
            return None, f"iperf3: {str(error)[:200]}"
        end = said["end"]
        rates = [float(end[key]["bits_per_second"]) / 1e9 for key in ("sum_received", "sum_received_bidir_reverse")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None, "iperf3 gave no whole result"
    finite = all(isfinite(rate) and rate >= 0 for rate in rates)
    return (min(rates), "") if finite else (None, "iperf3 gave no finite number")
