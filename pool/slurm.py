"""The pool in Slurm: reads nodes with `sinfo --json`, opens and closes them with `scontrol update`.

The answer read is that of Slurm 22.05 (OpenAPI v0.0.38), whose `scontrol` has no `--json`. Commands run on the control
node, through a `Run` that the caller hands in.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from pool.decision import PREFIX, Action, PoolNode, Step

TIMEOUT = 60.0
"""Seconds for one command: slurmctld answers in less than one unless it restarts."""

LARGEST = 64 * 2**20
"""Bytes of an answer that are read: 10,000 nodes are 15 MB."""

SETTLE = 60.0
"""Seconds that an opened node may take to answer slurmctld, which asks it on its own time."""

POLL = 2.0

BATCH = 200
"""Nodes in one command, which keeps it far below what an argument may hold."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_USABLE = ("idle", "allocated", "mixed", "down")
_CLOSING = frozenset({"DRAIN", "FAIL"})
_KNOWN = _CLOSING | {"COMPLETING", "PLANNED", "RESERVED", "MAINTENANCE"}
"""Flags of a node that may be opened. All others, known or not, speak of restarts, power or the cloud."""


class Completed(Protocol):
    """A command that has ended, as `subprocess.CompletedProcess[str]` is one."""

    @property
    def returncode(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


class Run(Protocol):
    """Runs a command on the control node. Who sends it through a shell, as ssh does, quotes it with `shlex.join`.

    Raises OSError or TimeoutError where the command could not be run.
    """

    def __call__(self, argv: Sequence[str], timeout: float) -> Completed: ...


class PoolError(Exception):
    """The scheduler did not answer, or said what cannot be understood: nothing is known, so nothing is opened."""


@dataclass(frozen=True)
class Applied:
    """What became of an action. `problem` says why it was not carried out or did not hold; none where all is well."""

    action: Action
    now: PoolNode | None
    """The node afterwards; none where Slurm no longer knows it."""
    problem: str = ""


class SlurmPool:
    """A Slurm cluster's nodes, read and changed through commands."""

    def __init__(
        self,
        run: Run,
        *,
        scheduler_user: str = "slurm",
        become: Sequence[str] = ("sudo", "-n"),
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`scheduler_user` is slurm.conf's SlurmUser, `become` what runs a command with an operator's rights."""
        self._run = run
        self._wait = wait
        self._scheduler_user = scheduler_user
        self._become = tuple(become)

    def nodes(self) -> dict[str, PoolNode]:
        """All nodes by name. Raises PoolError: a pool without nodes is one too."""
        return parse_nodes(self._command(("sinfo", "--json"), ()), self._scheduler_user)

    def apply(self, actions: Iterable[Action]) -> tuple[Applied, ...]:
        """Opens and closes, one command for each reason, and looks afterwards whether it is so.

        A node that someone else has touched since it was seen is left alone: Slurm has no compare-and-set, so an
        administrator who drains a node between that look and the command, some milliseconds, is the one case missed.
        Raises PoolError where Slurm does not answer; then the state of nodes is not known.
        """
        wanted = [each for each in actions if each.step is not Step.LEAVE]
        if not wanted:
            return ()
        before = self.nodes()
        current = [each for each in wanted if _unchanged(each.seen, before.get(each.node))]
        failed: dict[str, str] = {}
        for reason in sorted({each.reason for each in current if each.step is Step.CLOSE}):
            closing = [each.node for each in current if each.step is Step.CLOSE and each.reason == reason]
            failed |= self._update(closing, ("State=DRAIN", f"Reason={_own(reason)}"))
        opening = [each.node for each in current if each.step is Step.OPEN]
        failed |= self._update(opening, ("State=RESUME",))
        after = self._settled([name for name in opening if name not in failed])
        return tuple(
            _outcome(each, each in current, failed.get(each.node, ""), after.get(each.node)) for each in wanted
        )

    def _settled(self, opened: Sequence[str]) -> dict[str, PoolNode]:
        """All nodes, once those just opened have answered or their time is over."""
        waited = 0.0
        while True:
            nodes = self.nodes()
            silent = [name for name in opened if name in nodes and not nodes[name].closed and not nodes[name].ready]
            if not silent or waited >= SETTLE:
                return nodes
            self._wait(POLL)
            waited += POLL

    def _update(self, names: Sequence[str], changes: Sequence[str]) -> dict[str, str]:
        """Carries out a change; returns what went wrong, by node. Of a batch that fails each node is tried alone."""
        failed: dict[str, str] = {}
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            try:
                self._command(("scontrol", "update", f"NodeName={','.join(batch)}", *changes), self._become)
            except PoolError as error:
                failed |= {batch[0]: str(error)} if len(batch) == 1 else {}
                for name in batch if len(batch) > 1 else ():
                    failed |= self._update([name], changes)
        return failed

    def _command(self, argv: Sequence[str], before: Sequence[str]) -> str:
        try:
            done = self._run((*before, *argv), TIMEOUT)
        except (OSError, TimeoutError) as error:
            raise PoolError(
                f"{argv[0]} could not be run: {error} · control node · see that it can be reached"
            ) from None
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
            raise PoolError(f"{argv[0]} failed: {said} · control node · see `systemctl status slurmctld`")
        return done.stdout


def parse_nodes(text: str, scheduler_user: str = "slurm") -> dict[str, PoolNode]:
    """Reads the answer of `sinfo --json`. Raises PoolError where it is not one, has no node, or names one twice."""
    if len(text) > LARGEST:
        raise PoolError(f"sinfo answered more than {LARGEST} bytes · control node · look what it says")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PoolError(f"sinfo --json answered no JSON: {str(error)[:100]} · control node · run it there") from None
    listed = answer.get("nodes") if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not listed:
        raise PoolError("sinfo --json lists no node · control node · converge the cluster: slurm.conf names them")
    found: dict[str, PoolNode] = {}
    for entry in listed:
        node = _node(entry, scheduler_user)
        if node.name in found:
            raise PoolError(f"sinfo --json lists {node.name} twice · control node · run it there")
        found[node.name] = node
    return found


def _node(entry: Any, scheduler_user: str) -> PoolNode:
    if not isinstance(entry, dict):
        raise PoolError("sinfo --json lists a node that is no object · control node · run it there")
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PoolError(f"sinfo --json names a node {str(name)[:40]!r} · control node · run it there")
    base, flags = entry.get("state"), entry.get("state_flags")
    if not isinstance(base, str) or not isinstance(flags, list) or not all(isinstance(each, str) for each in flags):
        raise PoolError(f"sinfo --json gives no state of {name} · control node · `scontrol show node {name}`")
    marks = frozenset(flags)
    reason = entry.get("reason")
    return PoolNode(
        name=name,
        state="+".join([base, *(each.lower() for each in flags)]),
        # A state that is not known is not closed for good: such a node may be open once it registers.
        closed=bool(marks & _CLOSING) or base == "down",
        ready=base in _USABLE and marks <= _KNOWN,
        reason=" ".join(reason.split())[:1000] if isinstance(reason, str) else "",
        by_scheduler=entry.get("reason_set_by_user") == scheduler_user,
        since=_instant(entry.get("reason_changed_at")),
    )


def _instant(seconds: Any) -> datetime | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds < 2**33:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def _unchanged(seen: PoolNode, now: PoolNode | None) -> bool:
    """Whether nobody opened, closed or gave a reason since. Jobs may have come and gone."""
    return now is not None and (seen.closed, seen.ready, seen.reason, seen.by_scheduler, seen.since) == (
        (now.closed, now.ready, now.reason, now.by_scheduler, now.since)
    )


def _own(reason: str) -> str:
    """The reason, if it is one that Muster gives: one that is not would later be taken for an administrator's."""
    if not reason.startswith(PREFIX) or not reason.isascii() or not reason.isprintable() or '"' in reason:
        raise ValueError(f"not a reason of Muster's: {reason!r}")
    return reason


def _outcome(action: Action, tried: bool, failed: str, now: PoolNode | None) -> Applied:
    if now is None:
        problem = "Slurm does not know it any more"
    elif not tried:
        problem = f"changed since it was looked at, to {now.state}: {now.reason or 'no reason'}; nothing was done"
    elif failed:
        problem = failed
    elif action.step is Step.OPEN and (now.closed or not now.ready):
        problem = f"it was opened, but is {now.state}: {now.reason or 'no reason'}"
    elif action.step is Step.CLOSE and (not now.closed or now.reason != action.reason):
        problem = f"it was closed, but is {now.state}: {now.reason or 'no reason'}"
    else:
        problem = ""
    return Applied(action, now, problem)
