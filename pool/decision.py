"""Who may run: what to do with a node, from how its scheduler sees it and whether it holds a certificate. Pure.

Three parties close nodes: Muster, administrators, and the scheduler itself when a node is lost. Muster opens only what
it closed itself, or what the scheduler closed and an examination since then has found well. What an administrator
closed stays closed (mej/nhc#134).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "muster: "
"""Begins every reason that Muster gives to a scheduler. Reasons without it are others'."""

LONGEST_REASON = 160
_PLAIN = re.compile(r"[^A-Za-z0-9 .,:/_+%()=-]+")


class Standing(StrEnum):
    """Whether a node may be in the pool at all."""

    VALID = "valid"
    """It holds a certificate that verifies now, for this hardware and this spec."""
    NONE = "none"
    EXPIRED = "expired"
    REVOKED = "revoked"
    """A certificate that drift, a failed check or another identity has voided."""


@dataclass(frozen=True)
class Credential:
    """What a node has to show; `text` says why it is not valid, for people."""

    standing: Standing
    examined: datetime | None = None
    """Where it is valid: when the examination began that found the node well."""
    text: str = ""


class Closer(StrEnum):
    """Who took a node out of the pool."""

    NOBODY = "nobody"
    MUSTER = "muster"
    SCHEDULER = "scheduler"
    ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class PoolNode:
    """A node as its scheduler sees it."""

    name: str
    state: str
    """In the scheduler's own words, as in `idle+drain`."""
    closed: bool
    """No job will be started on it, and that stays so until someone opens it."""
    ready: bool
    """It answers, has registered as configured, and is not about to restart: what may be opened."""
    reason: str = ""
    by_scheduler: bool = False
    """The scheduler itself gave the reason, nobody else did."""
    since: datetime | None = None
    """When the reason was given, where the scheduler knows it."""

    @property
    def closer(self) -> Closer:
        """Who closed it. A node closed without a reason is an administrator's: nobody else forgets to give one."""
        if not self.closed:
            return Closer.NOBODY
        if self.reason.startswith(PREFIX):
            return Closer.MUSTER
        return Closer.SCHEDULER if self.by_scheduler else Closer.ADMINISTRATOR


class Step(StrEnum):
    """What is done to a node."""

    OPEN = "open"
    CLOSE = "close"
    LEAVE = "leave"


@dataclass(frozen=True)
class Action:
    """What to do with a node, and why. For a `close`, `reason` is what users see of the node in the scheduler.

    `seen` is the node that the decision was made on: it is not carried out on one that has changed since.
    """

    step: Step
    reason: str
    seen: PoolNode

    @property
    def node(self) -> str:
        """The node's name."""
        return self.seen.name


def decide(node: PoolNode, credential: Credential) -> Action:
    """What to do with one node. Pure, and the same again once it is done: `leave`."""
    if credential.standing is Standing.VALID:
        return _admit(node, credential.examined)
    reason = closing_reason(credential)
    if not node.closed:
        return Action(Step.CLOSE, reason, node)
    if node.closer is Closer.MUSTER and node.reason != reason:
        return Action(Step.CLOSE, reason, node)
    return Action(Step.LEAVE, _closed_by(node), node)


def decide_all(nodes: Mapping[str, PoolNode], credentials: Mapping[str, Credential]) -> tuple[Action, ...]:
    """An action for each node that the scheduler knows, by name. One without a credential has none.

    Raises LookupError where a credential is for a node that the scheduler does not know: nobody would notice otherwise.
    """
    unknown = sorted(set(credentials) - set(nodes))
    if unknown:
        raise LookupError(f"the scheduler does not know {', '.join(unknown)} · converge the cluster, which names them")
    none = Credential(Standing.NONE)
    return tuple(decide(nodes[name], credentials.get(name, none)) for name in sorted(nodes))


def closing_reason(credential: Credential) -> str:
    """The reason to close a node for: one line of plain characters, whatever the credential's text was made of."""
    what = {
        Standing.NONE: "no certificate",
        Standing.EXPIRED: "certificate expired",
        Standing.REVOKED: "certificate revoked",
    }[credential.standing]
    text = " ".join(_PLAIN.sub(" ", credential.text).split())
    return f"{PREFIX}{what}, {text}"[:LONGEST_REASON].rstrip() if text else PREFIX + what


def summary(actions: Iterable[Action]) -> dict[Step, tuple[str, ...]]:
    """Names of nodes by what is done to them."""
    found = list(actions)
    return {step: tuple(each.node for each in found if each.step is step) for step in Step}


def _admit(node: PoolNode, examined: datetime | None) -> Action:
    if not node.closed:
        return Action(Step.LEAVE, "open already", node)
    if node.closer is Closer.ADMINISTRATOR:
        return Action(Step.LEAVE, _closed_by(node), node)
    if not node.ready:
        return Action(Step.LEAVE, f"the scheduler says {node.state}: it is not ready to be opened", node)
    if node.closer is Closer.SCHEDULER and not (examined and node.since and examined > node.since):
        return Action(Step.LEAVE, f"{_closed_by(node)}, and not examined since", node)
    return Action(Step.OPEN, "certified", node)


def _closed_by(node: PoolNode) -> str:
    who = {Closer.ADMINISTRATOR: "an administrator", Closer.SCHEDULER: "the scheduler", Closer.MUSTER: "Muster"}
    return f"closed by {who[node.closer]}: {node.reason or 'no reason given'}"
