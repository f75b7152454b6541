"""Asks a Prometheus for the metrics of a job's nodes and time, within limits of time and size.

Its HTTP API: POST /api/v1/query_range (https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries).
"""

import base64
import http.client
import itertools
import math
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from validation.diagnose.allocation import NODE, short
from validation.diagnose.metrics.places import AFTER_S, BEFORE_S, Window
from validation.diagnose.metrics.series import Series, incomplete, parse
from validation.diagnose.sources import SourceError

LARGEST = 16 << 20
"""Bytes of one answer: its JSON takes some twenty times as much in memory at the worst."""
LIMIT_S = 60.0
"""Seconds for all answers together."""
ANSWER_S = 20.0
"""Seconds in which a single one must begin, and go on."""
MOST_POINTS = 4_000_000
"""Of all answers together: some 100 MB."""
LONGEST = timedelta(hours=3)
"""Before a job's end that are asked for: what it died of is no older, and levels of before are seen in it."""
STEP_S = 15
"""Seconds between points, at least: exporters are scraped every 15 to 60 s."""
STEPS = 480
"""Points of a series, at most."""
NODES_AT_ONCE = 16
NAMES_AT_ONCE = 8
MOST_NODES = 4096

TOKEN = "MUSTER_METRICS_TOKEN"  # noqa: S105 - the variable's name
_LABELS = ("instance", "Hostname", "node", "exported_node")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_more: object) -> None:
        return None  # a token goes to no other place than the one that was named


def window_of(start: datetime, end: datetime, nodes: Sequence[str]) -> Window:
    """The part of a job's time that is asked for."""
    first = max(start, end - LONGEST)
    return Window(first.timestamp(), end.timestamp(), tuple(nodes[:MOST_NODES]))


def ask(url: str, names: Iterable[str], window: Window) -> tuple[list[Series], list[str]]:
    """The series of these metrics, and what could not be had, with why. Never raises: the diagnosis goes on.

    In a thread of its own, which is left behind at the end of the time: a server can hold one up in more places than
    a socket's timeout covers.
    """
    try:
        where, headers = _address(url)
    except SourceError as wrong:
        return [], [str(wrong)]
    found: list[Series] = []
    wrong_: list[str] = []
    every = list(queries(sorted(set(names)), window.nodes))
    until = time.monotonic() + LIMIT_S
    asking = threading.Thread(
        target=_ask_all, args=(where, headers, every, window, until, found, wrong_), name="metrics", daemon=True
    )
    asking.start()
    asking.join(LIMIT_S)
    if asking.is_alive():
        late = f"{where}: not all was told in {LIMIT_S:g} s · ask a nearer or faster one"
        return list(found), [*dict.fromkeys([*wrong_, late])]
    return found, wrong_


def _ask_all(
    where: str,
    headers: dict[str, str],
    every: Sequence[str],
    window: Window,
    until: float,
    found: list[Series],
    wrong: list[str],
) -> None:
    points = 0
    for query in every:
        if time.monotonic() >= until:
            wrong.append(f"{where}: not all was told in {LIMIT_S:g} s · ask a nearer or faster one")
            return
        try:
            raw = _answer(where, headers, _asked(query, window), until)
            each = parse(raw, where)
            if (part := incomplete(raw, where)) and part not in wrong:
                wrong.append(part)
        except SourceError as why:
            if str(why) not in wrong:
                wrong.append(str(why))
            continue
        except (OSError, http.client.HTTPException) as broken:
            reason = str(getattr(broken, "reason", None) or broken or type(broken).__name__)[:200]
            wrong.append(f"{where}: {reason} · name a Prometheus that answers here, or save its answers as files")
            return
        found += each
        points += sum(len(one.times) for one in each)
        if points > MOST_POINTS:
            wrong.append(f"{where}: more than {MOST_POINTS:,} points · the rest was not asked for")
            return


def queries(names: Sequence[str], nodes: Sequence[str]) -> Iterator[str]:
    """Selectors of some metrics and nodes each; of all nodes where none is known."""
    known = [each for each in nodes if NODE.fullmatch(each)]
    groups = _parts(known, NODES_AT_ONCE * _coarser(len(known))) if known else [[]]
    for group, some in itertools.product(groups, _parts(names, NAMES_AT_ONCE)):
        name = f'__name__=~"{"|".join(some)}"'
        if not group:
            yield f"{{{name}}}"
            continue
        # Names of nodes have dots, and no other character that means anything in an expression.
        these = "|".join(short(each).replace(".", "[.]") for each in group)
        yield " or ".join(f'{{{name},{label}=~"({these})([.:].*)?"}}' for label in _LABELS)


def _coarser(nodes: int) -> int:
    """By how much fewer points of each series are asked for where there are many nodes: the answers stay as large."""
    return 1 if nodes <= 64 else 2 if nodes <= 256 else 4


def _parts(all_: Sequence[str], size: int) -> list[list[str]]:
    return [list(all_[i : i + size]) for i in range(0, len(all_), size)]


def _asked(query: str, window: Window) -> bytes:
    start, end = (window.start or 0.0) - BEFORE_S, (window.end or 0.0) + AFTER_S
    step = max(STEP_S, math.ceil((end - start) * _coarser(len(window.nodes)) / STEPS))
    told = {
        "query": query,
        "start": f"{start:.0f}",
        "end": f"{end:.0f}",
        "step": str(step),
        "timeout": f"{ANSWER_S:.0f}s",
    }
    return urlencode(told).encode()


def _address(url: str) -> tuple[str, dict[str, str]]:
    """Where it is, without its password, and the headers that it wants. Raises SourceError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
        # The password may be anywhere in what is no address.
        raise SourceError("metrics: that is no address of a Prometheus · give it as http://HOST:9090")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = urlunsplit((parts.scheme, f"{host}:{port}" if port else host, parts.path.rstrip("/"), "", ""))
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if token := os.environ.get(TOKEN):
        headers["Authorization"] = f"Bearer {token.strip()}"
    elif parts.username:
        plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(plain.encode()).decode()}"
    return where, headers


def _answer(where: str, headers: dict[str, str], asked: bytes, until: float) -> bytes:
    """The body of an answer. Raises SourceError, OSError."""
    request = urllib.request.Request(f"{where}/api/v1/query_range", asked, headers)  # noqa: S310 - http or https
    try:
        opened = urllib.request.build_opener(_Stay).open(
            request, timeout=min(ANSWER_S, max(0.1, until - time.monotonic()))
        )
    except urllib.error.HTTPError as refused:
        with refused:
            body = refused.read1(64 << 10)
        if body.lstrip().startswith(b"{"):
            parse(body, where)  # says why
        raise SourceError(
            f"{where}: {refused.code} {str(refused.reason)[:80]} · look at the address and the token"
        ) from None
    pieces, size = [], 0
    with opened as file:
        while piece := file.read1(1 << 20):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                raise SourceError(f"{where}: an answer of more than {LARGEST >> 20} MiB · ask one that has fewer nodes")
            if time.monotonic() >= until:
                raise TimeoutError(f"not all was told in {LIMIT_S:.0f} s")
    return b"".join(pieces)


def now() -> datetime:
    """The end of a job that still runs."""
    return datetime.now(UTC)
