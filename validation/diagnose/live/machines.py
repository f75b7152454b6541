"""What a node's links and GPUs say beside its ranks, as lines that rules know. Pure."""

from collections.abc import Iterator

from validation.diagnose.finding import Line
from validation.diagnose.live.snapshot import Gpu, Link, Snapshot

MOST = 32
"""Lines of one node."""


def told(snapshot: Snapshot) -> Iterator[Line]:
    """Links that are down or lose packets, GPUs that are gone, hot or damaged."""
    texts = [*(text for link in snapshot.links for text in _link(link)), *_gpus(snapshot.gpus)]
    for text in texts[:MOST]:
        yield Line(snapshot.name, 0, f"live: on node {snapshot.node} {text}", snapshot.time, None, snapshot.node)


def _link(link: Link) -> Iterator[str]:
    if not link.up and link.was_up:
        yield f"link {link.name} is down"
    if link.rises:
        rose = ", ".join(f"{name} by {count}" for name, count in sorted(link.rises.items())[:6])
        yield f"link {link.name} has errors that rise: {rose}"


def _gpus(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    for each in gpus:
        if each.wrong:
            yield f"GPU {each.name} does not answer: {each.wrong[:120]}"
        if each.uncorrected:
            yield f"GPU {each.name} has {each.uncorrected} uncorrected memory errors"
        if each.throttled:
            yield f"GPU {each.name} is slowed down: {', '.join(each.throttled[:6])}"
