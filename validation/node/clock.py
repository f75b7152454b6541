"""The clock, as chrony tells of it."""

from validation.node.host import CommandFailed, Host
from validation.node.measure import Unmeasurable, measure

LOCAL_REFERENCE = "7F7F0101"
"""The reference id 127.127.1.1: chronyd serves its own clock (chrony.conf, `local`)."""

UNSYNCHRONISED = "Not synchronised"


@measure("time.synchronised", source="chronyc tracking")
def synchronised(host: Host) -> bool:
    """Whether chronyd follows a source, or serves its own clock because it was told to."""
    return host.once(tracking)["leap"] != UNSYNCHRONISED


@measure("time.offset_ms", unit="ms", source="chronyc tracking")
def offset_ms(host: Host) -> float:
    """How far the system clock is from what chronyd takes for the right time, without sign.

    Raises Unmeasurable where chronyd is not synchronised: it then says 0.
    """
    return round(abs(float(_synchronised(host)["offset"])) * 1000, 6)


@measure("time.stratum", source="chronyc tracking")
def stratum(host: Host) -> int:
    """Steps between this clock and a reference clock."""
    return int(_synchronised(host)["stratum"])


@measure("time.source", source="chronyc sources")
def source(host: Host) -> str:
    """Whom the clock follows now, by the name or address in its configuration; `local` where it is the node's own."""
    if _synchronised(host)["reference"] == LOCAL_REFERENCE:
        return "local"
    return selected(_chronyc(host, "sources"))


def tracking(host: Host) -> dict[str, str]:
    """What `chronyc -c tracking` tells, by name."""
    return read_tracking(_chronyc(host, "tracking"))


def read_tracking(told: str) -> dict[str, str]:
    """`{reference, address, stratum, offset, leap}` of one line of 14 fields; offset in seconds.

    Raises ValueError where it is not that line.
    """
    fields = told.strip().split(",")
    if len(fields) != 14:
        raise ValueError(f"chronyc tracking told {len(fields)} fields instead of 14: {told[:200]!r}")
    return dict(zip(("reference", "address", "stratum", "time", "offset"), fields, strict=False)) | {"leap": fields[13]}


def selected(told: str) -> str:
    """The source marked `*` in `chronyc -c -N sources`. Raises Unmeasurable where none is."""
    for line in told.splitlines():
        fields = line.split(",")
        if len(fields) >= 3 and fields[1] == "*":
            return fields[2]
    raise Unmeasurable("chronyd has selected no source")


def _synchronised(host: Host) -> dict[str, str]:
    told = host.once(tracking)
    if told["leap"] == UNSYNCHRONISED:
        raise Unmeasurable("chronyd is not synchronised")
    return told


def _chronyc(host: Host, command: str) -> str:
    try:
        return host.run("chronyc", "-c", "-N", command)
    except CommandFailed as error:
        if "Cannot talk to daemon" in str(error):
            raise Unmeasurable("chronyd does not run") from None
        raise
