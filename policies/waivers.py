"""Waivers: controls that a cluster is excused from for a while. Only a failure can be waived, never what is unknown."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from policies.catalogue import Catalogue
from policies.reading import PolicyError
from spec.plan import ClusterPlan


@dataclass(frozen=True)
class Waiver:
    """One waiver. `nodes` is empty where it covers all; `expires` has a zone."""

    id: str
    control: str
    nodes: frozenset[str]
    reason: str
    approved_by: str
    expires: datetime

    def covers(self, control: str, node: str) -> bool:
        """Whether it is about this control on this node, expired or not."""
        return control == self.control and (not self.nodes or node in self.nodes)

    def lasts(self, now: datetime) -> bool:
        """Whether it still holds; at its last instant it does not."""
        return now < self.expires


@dataclass(frozen=True)
class Waivers:
    """A cluster's waivers."""

    waivers: tuple[Waiver, ...] = ()

    def find(self, control: str, node: str) -> Waiver | None:
        """The one that covers a control on a node and lasts longest; it may have expired."""
        return max(
            (each for each in self.waivers if each.covers(control, node)), key=lambda each: each.expires, default=None
        )


NO_WAIVERS = Waivers()


def waivers_of(plan: ClusterPlan, catalogue: Catalogue) -> Waivers:
    """The waivers that the spec declares. Raises PolicyError where one names a control or node that is not there, or
    no instant: a waiver that covers nothing is a mistake.
    """
    problems: list[str] = []
    found: list[Waiver] = []
    names = {node.name for node in plan.nodes}
    for index, declared in enumerate(plan.spec.waivers):
        where = f"waivers[{index}] {declared.id}"
        if declared.control not in catalogue:
            problems.append(f"{where}: no control {declared.control!r}; `muster controls` lists them")
        problems += [f"{where}: no node {each!r} in {plan.name}" for each in _strangers(declared.nodes, names)]
        try:
            expires = datetime.fromisoformat(declared.expires)
        except ValueError as error:
            problems.append(f"{where}: expires: {declared.expires}: {error}; write an instant as 2026-12-24T12:00:00Z")
            continue
        found.append(
            Waiver(
                declared.id,
                declared.control,
                frozenset(declared.nodes),
                declared.reason,
                declared.approved_by,
                expires,
            )
        )
    if problems:
        raise PolicyError(problems)
    return Waivers(tuple(found))


def _strangers(nodes: Iterable[str], known: set[str]) -> list[str]:
    return sorted(set(nodes) - known)
