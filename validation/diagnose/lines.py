"""A line as its program wrote it: colours and what launchers and loggers put before it are taken off, and read.

Who wrote a line is told by the launcher's prefix (torchrun, mpirun, srun, kubectl), by the line's own words (NCCL,
syslog, Muster's JSON), or by the name of its file.
"""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

LONGEST = 4000
"""Characters of a line that are looked at."""

COLOUR = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-B])")
"""ECMA-48 control sequences, and titles of terminals."""


NO_YEAR = timezone(timedelta(), "no year")
"""UTC, of a time whose year is only that of its file: `times` sets it right by the others."""


class Head(NamedTuple):
    """What stood before a text."""

    text: str
    time: datetime | None = None
    rank: int | None = None
    node: str | None = None


_RANK = (
    re.compile(r"^\s*\[(?:default|rank|trainer|worker)_?(?P<rank>\d{1,7})(?:\|\d+)?\]:?\s?"),  # torchrun
    re.compile(r"^\s*\[\d+,(?P<rank>\d{1,7})\](?:<std(?:out|err|diag)>)?:?\s?"),  # mpirun --tag-output
    re.compile(r"^\s*(?P<rank>\d{1,6}):\s(?!\d\d)"),  # srun --label
    re.compile(r"^\[pod/(?P<node>[\w.-]+)/[\w.-]+\]\s?"),  # kubectl logs --prefix
    re.compile(
        r"^\(?(?P<node>[\w-]+)(?:, | )?rank[= ](?P<rank>\d{1,7})(?:, pid=\d+(?:, ip=[\w.:]+)?)?\)?:?\s", re.IGNORECASE
    ),
    re.compile(  # NODE:RANK, which is no FILE:LINE
        r"^\[(?P<node>(?!(?:rank|local_rank|step|line|pid)\b|[\w.-]*\.\w{1,3}:)[a-z][\w.-]{0,62})"
        r":(?P<rank>\d{1,5})\]: ?"
    ),
    re.compile(r"^\([\w.()<>:-]{1,80} pid=\d+(?:, ip=(?P<node>[\w.:]{1,63}))?\)\s"),  # Ray
    re.compile(r"^slurmstepd-(?P<node>[\w.-]{1,63}): (?=error: |\*\*\* )"),  # Debian's Slurm
    re.compile(r"^(?P<node>(?!(?:step|epoch|attempt|rank|checkpoint|job)\b)[a-z][a-z0-9-]{0,60}-\d+): "),  # pdsh
    re.compile(
        r"^(?P<node>(?=[\w-]*[-\d])[a-z][\w-]{0,60}|\d{1,3}(?:\.\d{1,3}){3}): "
        r"(?=Traceback \(most|  File \"|\[\d{4}-\d\d-|\[(?:default|rank)_?\d{1,7}\]: |"
        r"(?:[a-z_]\w*\.){0,6}[A-Z]\w*Error\b)"
    ),
    re.compile(r"^(?P<node>[a-z][\w.-]{0,61}\d)\s{1,20}\| "),  # docker compose
    re.compile(  # journalctl -o short-iso, of whose time the node is what is left
        r"^(?P<node>[\w.-]{1,63}) "
        r"(?=(?:kernel|systemd[\w-]*|slurm\w+|containerd|kubelet|nv-fabricmanager|nvidia-[a-z-]+|mmfs\w*)"
        r"(?:\[\d+\])?: )"
    ),
)
_DAY = r"(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)"
_CLOCK = r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_TIME = (
    re.compile(rf"^\s?\[?{_DAY}[T ]{_CLOCK}\s?(?P<z>Z|[+-]\d\d:?\d\d)?\]?:?\s?"),
    re.compile(rf"^\[?[IWEF](?P<mo>\d?\d)(?P<d>\d\d) {_CLOCK}\s+(?:\d+\s+)?[\w/.-]+:\d+\]\s?"),  # glog
    re.compile(rf"^(?P<mon>[A-Z][a-z][a-z])\s+(?P<d>\d{{1,2}}) {_CLOCK} (?P<node>[\w.-]+) "),  # syslog
    re.compile(
        rf"^\[[A-Z][a-z][a-z] (?P<mon>[A-Z][a-z][a-z])\s+(?P<d>\d{{1,2}}) {_CLOCK} (?P<y>\d{{4}})\]\s?"
    ),  # dmesg -T
)
_NCCL = re.compile(r"^(?P<node>[\w.-]{1,63}):\d+:\d+ \[\d+\] (?=NCCL |misc/|transport/|\w+/|.{0,80}NCCL )")
_MPI = re.compile(r"^\[(?P<node>[a-z][\w.-]{0,62}):\d+(?::\d+:\d+| :\d+:\d+)?\] ")
"""Open MPI and UCX."""


def head(raw: str, year: int) -> Head:
    """The text of a line and what stood before it. `year`: the file's, where a time has none. Never raises."""
    text = raw[:LONGEST].rstrip("\r\n").rpartition("\r")[2]
    if text.startswith("{"):
        return _json(text, year)
    time, rank, node = None, None, None
    for _ in range(4):  # prefixes come in any order
        taken = _taken(text, year)
        if taken is None:
            break
        text, time, rank, node = (
            taken.text,
            taken.time or time,
            rank if taken.rank is None else taken.rank,
            taken.node or node,
        )
    if text.startswith("slurmstepd: "):
        rank = None  # srun --label puts the first task of the node before what its daemon says of all of them
    if text.startswith("{"):  # a structured line behind an engine's prefix
        told = _json(text, year)
        return Head(told.text, told.time or time, rank if told.rank is None else told.rank, told.node or node)
    return Head(text, time, rank, node)


def _taken(text: str, year: int) -> Head | None:
    for pattern in _RANK:
        if found := pattern.match(text):
            groups = found.groupdict()
            rank = int(groups["rank"]) if groups.get("rank") else None
            said = "slurmstepd: " if found[0].startswith("slurmstepd-") else ""
            return Head(said + text[found.end() :], None, rank, groups.get("node"))
    for pattern in _TIME:
        if found := pattern.match(text):
            return Head(text[found.end() :], _time(found.groupdict(), year), None, found.groupdict().get("node"))
    # NCCL's own words begin with the node; they stay, as rules look for them.
    return None


def _time(parts: dict[str, str | None], year: int) -> datetime | None:
    month = parts.get("mo") or parts.get("mon") or ""
    try:
        number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
        micro = int(((parts.get("f") or "") + "000000")[:6])
        found = datetime(
            int(parts.get("y") or year), number, int(parts["d"] or 0), int(parts["h"] or 0), int(parts["mi"] or 0),
            int(parts["s"] or 0), micro, UTC if parts.get("y") else NO_YEAR,
        )  # fmt: skip
        zone = (parts.get("z") or "Z").replace(":", "")
        return found if zone == "Z" else datetime.strptime(f"{found:%Y%m%d%H%M%S%f}{zone}", "%Y%m%d%H%M%S%f%z")
    except ValueError:
        return None


SAID = frozenset(
    {"message", "msg", "event", "error", "err", "exception", "exc_info", "traceback", "stack", "level", "levelname"}
    | {"severity", "reason", "record", "detail", "stderr", "stdout", "textpayload", "jsonpayload"}
)
"""Names that a structured log has: an object without any of them is a record of data, and nobody said its words."""


def _json(text: str, year: int) -> Head:
    """A line of a structured log: its words are those of the message, the event and the error."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):  # thousands of brackets
        return Head(text)
    if not isinstance(told, dict):
        return Head(text)
    for name in ("log", "MESSAGE"):  # docker's, and journalctl's
        if isinstance(told.get(name), str):
            inner = head(told[name], year)
            node = told.get("_HOSTNAME")
            return inner._replace(node=inner.node or (node[:63] if isinstance(node, str) else None))
    if SAID.isdisjoint(name.lower() for name in told):
        text = json.dumps({name: value for name, value in told.items() if isinstance(value, int | float)})[:LONGEST]
    rank, node, time = told.get("rank"), told.get("host", told.get("node")), None
    for name in ("time", "timestamp", "ts", "@timestamp"):
        if isinstance(told.get(name), str):
            time = head_time(told[name])
            break
    return Head(
        text,
        time,
        rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1_000_000 else None,
        node[:63] if isinstance(node, str) else None,
    )


def head_time(text: str) -> datetime | None:
    """A time as ISO 8601 has it; none where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def node_of(text: str) -> str | None:
    """The node that the own prefix of NCCL, Open MPI or UCX names."""
    found = _NCCL.match(text) or _MPI.match(text)
    return found["node"] if found else None


_LOGS = r"(?:dmesg|kern|kernel|messages|syslog)"
_FILE = (
    re.compile(r"(?:^|[/_.-])rank[_=.-]?(?P<rank>\d{1,6})(?=[/_.-]|$)", re.IGNORECASE),
    re.compile(r"(?:^|/)attempt_\d+/(?P<rank>\d{1,6})/std(?:out|err)\.log$"),  # torchrun --log-dir
    re.compile(r"(?:^|/)slurm-\d+[_-](?P<rank>\d{1,6})\.(?:out|err|log)$"),
    re.compile(rf"(?:^|/)(?P<node>[a-z][\w-]*?-?\d+)[-_.]{_LOGS}(?:\.log|\.txt)?$"),
    re.compile(rf"(?:^|[/_.]){_LOGS}[-_.](?P<node>[\w-]+?)(?:\.log|\.txt)?$"),
)


def whose(path: str) -> tuple[int | None, str | None]:
    """The rank and the node that a file's name says it is of. Suffixes of compression and rotation are gone."""
    for pattern in _FILE:
        if found := pattern.search(path):
            groups = found.groupdict()
            return (int(groups["rank"]) if groups.get("rank") else None), groups.get("node")
    return None, None
