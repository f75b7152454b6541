"""Takes the measurements: a pytest session in which every measure is an item, whatever the others do.

The request is JSON on standard input: `{node, expectations, options}`. Options: `only`, names of measures to take;
`limit_s`, seconds for all of them together.
"""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pytest

from validation.node import (  # noqa: F401 - their measures register themselves
    clock,
    filesystem,
    firewall,
    gpu,
    kernel,
    machine,
    network,
    packages,
    ports,
    rdma,
    scheduler,
    services,
    users,
)
from validation.node.host import Host, set_deadline
from validation.node.identity import identity
from validation.node.measure import MEASURES, Json, Measure, Unmeasurable
from validation.node.nvml import Nvml
from validation.node.stream import VALUE_LIMIT, Writer

REQUEST_LIMIT = 16 * 1024 * 1024
LIMIT_S = 150.0
REASON_LIMIT = 1500

PYTEST = (
    *("--rootdir=/", "--noconftest", "--config-file=/dev/null", "--assert=plain", "--capture=no"),
    *(
        part
        for name in ("cacheprovider", "terminal", "logging", "faulthandler", "doctest")
        for part in ("-p", f"no:{name}")
    ),
    *(part for name in ("junitxml", "pastebin", "stepwise", "tmpdir", "legacypath") for part in ("-p", f"no:{name}")),
)
"""Nothing is read from the node, nothing is written to it, and nobody looks at a terminal."""


def main() -> None:
    """Examines this machine: request on standard input, stream on standard output.

    Ends with 0 once the closing record is written, with 2 where the request is not to be understood. It ends for good:
    what hangs is left behind.
    """
    gc.disable()
    os.environ |= {
        "LC_ALL": "C.UTF-8",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": _path(os.environ.get("PATH", "")),
    }
    os.environ.pop("PYTEST_ADDOPTS", None)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what anybody else prints is not part of the stream
        try:
            request = read_request(sys.stdin.buffer.read(REQUEST_LIMIT + 1))
        except (ValueError, RecursionError) as error:
            print(f"the request is not to be understood: {error}", file=sys.stderr)  # noqa: T201
            os._exit(2)
        examine(request, out)
    sys.stderr.flush()
    os._exit(0)


def read_request(data: bytes) -> dict[str, Json]:
    """`{node, measures, expectations, limit_s, patience}` of a request. Raises ValueError where it is not one."""
    if len(data) > REQUEST_LIMIT:
        raise ValueError(f"it has more than {REQUEST_LIMIT} bytes")
    told = json.loads(data)
    if not isinstance(told, dict) or not isinstance(told.get("node"), str):
        raise ValueError("it names no node")
    expectations, options = told.get("expectations", {}), told.get("options", {})
    if not isinstance(expectations, dict) or not isinstance(options, dict):
        raise ValueError("expectations and options are mappings")
    names = options.get("only", list(MEASURES))
    unknown = sorted(set(names) - MEASURES.keys())
    if unknown or not names:
        raise ValueError(f"no measure is called {unknown[0]}" if unknown else "it asks for no measure")
    return {
        "node": told["node"],
        "expectations": expectations,
        "measures": [MEASURES[name] for name in dict.fromkeys(names)],
        "limit_s": float(options.get("limit_s", LIMIT_S)),
        "patience": float(options.get("patience", 1)),
    }


def examine(request: dict[str, Json], out: BinaryIO) -> None:
    """Takes all measurements that a request asks for, and writes the stream."""
    host, nvml, writer = Host(request["node"], request["expectations"]), Nvml(), Writer(out)
    found, _ = in_time(lambda: identity(host, nvml), 20 * request["patience"])
    writer.header(node=request["node"], started=_now(), identity=found or {})
    suite = Suite(request["measures"], {"host": host, "nvml": nvml}, writer, request["limit_s"], request["patience"])
    pytest.main(list(PYTEST), plugins=[suite])
    for each in suite.left:
        writer.measurement(measure=each.name, outcome="error", reason="pytest ended before it was taken")
    writer.close(finished=_now())


class Suite:
    """The pytest plugin: gives the session its items, and their answers to the writer.

    Args: `limit_s` for all measures together; `patience` multiplies the limit of each.
    """

    def __init__(
        self, measures: Sequence[Measure], context: dict[str, Any], writer: Writer, limit_s: float, patience: float = 1
    ) -> None:
        self.left = list(measures)
        self.context = context
        self.writer = writer
        self.end = time.monotonic() + limit_s
        self.patience = patience

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """The items are the measures: there are no files to look for."""
        session.items = [Item.from_parent(session, name=each.name, suite=self, measure=each) for each in self.left]
        session.testscollected = len(session.items)
        return True

    def take(self, measure: Measure) -> str | None:
        """Takes one measurement and writes it. Returns the reason where measuring failed."""
        started = time.monotonic()
        limit = min(measure.limit_s * self.patience, self.end - started)
        value, error = (
            in_time(lambda: measure.function(*(self.context[want] for want in measure.wants)), limit)
            if limit > 0
            else (None, TimeoutError("the time for the whole suite was over before"))
        )
        answer = outcome(value, error)
        source, simulated = self._source(measure)
        self.writer.measurement(
            measure=measure.name,
            **answer,
            unit=measure.unit,
            per=measure.per,
            source=source,
            simulated=simulated,
            took_s=round(time.monotonic() - started, 4),
        )
        self.left.remove(measure)
        return answer.get("reason") if answer["outcome"] == "error" else None

    def _source(self, measure: Measure) -> tuple[str | None, bool]:
        if "nvml" not in measure.wants:
            return measure.source, False
        told, _ = in_time(self.context["nvml"].source, 2 * self.patience)
        return told or measure.source, self.context["nvml"].simulated


class Item(pytest.Item):
    """One measurement."""

    def __init__(self, *, suite: Suite, measure: Measure, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite = suite
        self.measure = measure

    def runtest(self) -> None:
        """Fails where measuring failed; what was measured is not judged here."""
        reason = self.suite.take(self.measure)
        if reason:
            pytest.fail(reason, pytrace=False)


def outcome(value: Json, error: BaseException | None) -> dict[str, Json]:
    """How a measurement came out: `{outcome, value}` or `{outcome, reason}`."""
    if error is None:
        try:
            size = len(json.dumps(value, allow_nan=False))
            if size <= VALUE_LIMIT:
                return {"outcome": "measured", "value": value}
            error = OverflowError(f"the value has {size} bytes, more than {VALUE_LIMIT}")
        except (TypeError, ValueError) as reason:
            error = reason
    if isinstance(error, Unmeasurable):
        return {"outcome": "unmeasurable", "reason": str(error)[:REASON_LIMIT] or "no reason was given"}
    return {"outcome": "error", "reason": f"{type(error).__name__}: {error}"[:REASON_LIMIT]}


def in_time(function: Callable[[], Json], seconds: float) -> tuple[Json, BaseException | None]:
    """What a function returns or raises, or TimeoutError once the time is over.

    It runs in a thread of its own, which is left behind where it hangs: nothing can stop a call into the kernel or a
    library.
    """
    answer: list[tuple[Json, BaseException | None]] = []

    def work() -> None:
        set_deadline(seconds)
        try:
            answer.append((function(), None))
        except BaseException as error:
            answer.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else (None, TimeoutError(f"no answer within {seconds:.0f} s"))


def _path(path: str) -> str:
    """With the administrator's tools, which a login by SSH does not always have."""
    return ":".join(dict.fromkeys([*filter(None, path.split(":")), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
