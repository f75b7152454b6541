"""A save after a failure: by files alone, since a communicator may be broken, and within a time limit."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.layout import Layout
from runtime.checkpoint.lease import HeldError
from runtime.checkpoint.saving import committed
from runtime.checkpoint.snapshot import Snapshot, Source
from runtime.checkpoint.state import Captured, Training, capture
from runtime.checkpoint.tier import Blob
from runtime.checkpoint.tiers import Level, described
from runtime.events import Tell
from runtime.place import Place

TURN = 1 << 20
"""Beyond any turn of a regular save."""


def saved(
    training: Training,
    step: int,
    level: Level,
    layout: Layout,
    config: CheckpointConfig,
    place: Place,
    tell: Tell,
    deadline: float,
) -> bool:
    """Whether a checkpoint of the step stands by the deadline (of time.monotonic). Never raises.

    Work that hangs in a device or in storage is left to a thread that the process does not wait for.
    """
    found: list[bool] = []

    def work() -> None:
        try:
            captured = capture(training, place.rank)
            whole = layout.everything(captured)
            if whole is not None:
                found.append(_alone(captured, whole, step, level, config, place, deadline))
            else:
                found.append(_together(captured, step, level, layout, config, place, deadline))
        except Exception as wrong:  # any: what failed before this may have left anything behind
            tell("checkpoint.emergency_failed", step=step, reason=f"{type(wrong).__name__}: {wrong}")

    thread = threading.Thread(target=work, name="muster-emergency", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if thread.is_alive():
        tell("checkpoint.emergency_failed", step=step, reason="not done within the time limit")
    stands = bool(found) and found[0]
    if stands:
        tell("checkpoint.emergency", step=step)
    return stands


def _alone(
    captured: Captured,
    sources: Sequence[Source],
    step: int,
    level: Level,
    config: CheckpointConfig,
    place: Place,
    deadline: float,
) -> bool:
    """This rank holds everything: the leader writes it as a world of one, or the first of the others."""
    claim = level.tier.folder / f".emergency-{step}-{place.attempt}"
    if not level.leads and _appears(level, step, place, time.monotonic() + 0.4 * (deadline - time.monotonic())):
        return True  # the folder is the leader's for as long as it lives
    one = place.model_copy(update={"rank": 0, "world": 1, "local_rank": 0, "local_world": 1})
    while time.monotonic() < deadline and not committed(level, step, TURN, place.attempt):
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            time.sleep(0.1)
            continue
        try:
            _write(captured, sources, step, level, one, place.rank, leads=True)
            _commit(step, level, config, one, (0,), deadline)
            return True
        except HeldError:
            pass  # the rank that holds the folder is alive, and comes to this itself
        finally:
            with contextlib.suppress(OSError):
                claim.unlink()
        time.sleep(1.0)
    return committed(level, step, TURN, place.attempt)


def _together(
    captured: Captured, step: int, level: Level, layout: Layout, config: CheckpointConfig, place: Place, deadline: float
) -> bool:
    """This rank holds a part: each writes its own, and it is whole if all do."""
    sources = [source for source, share in layout.sources(captured) if share.shared]
    _write(captured, sources, step, level, place, place.rank, leads=layout.leads)
    if level.leads:
        _commit(step, level, config, place, level.ranks, deadline)
        return True
    return _appears(level, step, place, deadline)


def _write(
    captured: Captured, sources: Sequence[Source], step: int, level: Level, place: Place, rank: int, *, leads: bool
) -> None:
    values: dict[str, JsonValue] = {"rank": rank, "kind": "emergency", "mine": captured.mine}
    if leads:
        values["shared"] = captured.shared
    level.tier.begin(step, place, TURN).write(_blobs(sources), values)


def _blobs(sources: Sequence[Source]) -> Iterator[Blob]:
    """Copied one at a time: nothing trains on meanwhile, and there may be no memory for more."""
    snapshot = Snapshot()
    for each in sources:
        (copy,) = snapshot.take([each])
        snapshot.ready()
        yield Blob(copy.name, copy.dtype, copy.shape, copy.box.offset, copy.box.extent, copy.buffer)


def _commit(
    step: int, level: Level, config: CheckpointConfig, place: Place, ranks: Sequence[int], deadline: float
) -> None:
    wait_s = max(0.0, deadline - time.monotonic())
    level.tier.commit(step, place, wait_s, turn=TURN, ranks=ranks, values={"turn": TURN}, **described(config))


def _appears(level: Level, step: int, place: Place, deadline: float) -> bool:
    while time.monotonic() < deadline:
        if committed(level, step, TURN, place.attempt):
            return True
        time.sleep(0.1)
    return False
