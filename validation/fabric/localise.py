"""Finds the node, leaf or path at fault on one rail, in few rounds of disjoint pair tests.

Pure: a generator yields rounds of pairs and is sent which of them held. The order follows from what can hide what:
first pairs within each leaf (no spine involved), then each suspect against two distinct nodes that passed, of its own
leaf where there are any, and only then paths between leaves, between nodes that are cleared. A node is blamed only
where both partners, proven good, failed with it; where no proven partner is left, the answer is `inconclusive`.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TypeAlias

from policies.fabric import FaultKind, Finding

Two: TypeAlias = tuple[str, str]
Round: TypeAlias = tuple[Two, ...]
Held: TypeAlias = Mapping[Two, bool]

PARTNERS = 2
"""Proven partners that must fail with a suspect before it is blamed: with one, a bad path passes for a bad node."""


def localise(
    rail: int, leaves: Mapping[str, Sequence[str]], down: frozenset[str] = frozenset()
) -> Generator[Round, Held, tuple[Finding, ...]]:
    """Findings of one rail; none where every pair held.

    Args:
        rail: its number, for names.
        leaves: each leaf's nodes.
        down: nodes whose own port is known to be down: they are named as they are and test nobody.
    Yields: rounds of pairs, no node twice in a round. Expects whether each of them held.
    """
    search = _Search(rail, leaves, down)
    yield from search.within_leaves()
    yield from search.suspects()
    yield from search.between_leaves()
    return tuple(search.findings)


class _Search:
    def __init__(self, rail: int, leaves: Mapping[str, Sequence[str]], down: frozenset[str]) -> None:
        self.rail = rail
        self.leaves = {leaf: [node for node in nodes if node not in down] for leaf, nodes in leaves.items()}
        self.home = {node: leaf for leaf, nodes in self.leaves.items() for node in nodes}
        self.good: set[str] = set()
        self.failed: list[Two] = []
        self.findings = [
            self._finding(FaultKind.NODE, node, (node,), "its own port is down")
            for node in sorted(down)
            if any(node in nodes for nodes in leaves.values())
        ]

    def _finding(self, kind: FaultKind, subject: str, nodes: tuple[str, ...], evidence: str) -> Finding:
        if kind is FaultKind.NODE:
            kind, subject = FaultKind.RAIL, f"rail {self.rail} of {subject}"
        return Finding(kind=kind, subject=subject, nodes=nodes, evidence=evidence)

    def _learn(self, held: Held) -> None:
        for pair, ok in held.items():
            if ok:
                self.good.update(pair)
            else:
                self.failed.append(pair)

    def within_leaves(self) -> Generator[Round, Held, None]:
        """One matching inside each leaf; nodes left over are matched with each other, or with one that passed."""
        pairs: list[Two] = []
        over: list[str] = []
        for nodes in self.leaves.values():
            pairs += zip(nodes[::2], nodes[1::2], strict=False)
            if len(nodes) % 2:
                over.append(nodes[-1])
        if pairs:
            self._learn((yield tuple(pairs)))
        late: list[Two] = []
        busy: set[str] = set()
        for node in over:
            mates = [mate for mate in self._partners(node) if mate not in busy]
            others = [other for other in over if other != node and other not in busy]
            if node in busy or not (mates or others):
                continue
            mate = (mates or others)[0]
            late.append((node, mate))
            busy.update((node, mate))
        if late:
            self._learn((yield tuple(late)))

    def _partners(self, node: str) -> list[str]:
        """Proven nodes to test a node with: those of its own leaf first."""
        tried = {each for pair in self.failed if node in pair for each in pair}
        return sorted(self.good - tried - {node}, key=lambda mate: (self.home[mate] != self.home[node], mate))

    def suspects(self) -> Generator[Round, Held, None]:
        """Each suspect against two distinct proven nodes."""
        against: dict[str, list[str]] = {node: [] for node in self.home if node not in self.good}
        while waiting := [node for node in against if node not in self.good and len(against[node]) < PARTNERS]:
            round_, busy = [], set[str]()
            for node in waiting:
                mate = next((mate for mate in self._partners(node) if mate not in busy), None)
                if mate is not None:
                    round_.append((node, mate))
                    busy.add(mate)
            if not round_:
                break
            held = yield tuple(round_)
            self._learn(held)
            for (node, mate), ok in held.items():
                if not ok:
                    against[node].append(mate)
        blamed = [node for node in against if node not in self.good and len(against[node]) >= PARTNERS]
        for leaf, nodes in self.leaves.items():
            lost = [node for node in nodes if node in blamed]
            if len(lost) > 1 and len(lost) == len(nodes):
                proof = f"all {len(lost)} of its nodes fail, each with {PARTNERS} nodes of other leaves that passed"
                self.findings.append(self._finding(FaultKind.LEAF, leaf, tuple(lost), proof))
                continue
            for node in lost:
                proof = f"fails with {' and '.join(against[node])}, which both passed with others"
                self.findings.append(self._finding(FaultKind.NODE, node, (node,), proof))
        for node in against:
            if node not in self.good and node not in blamed:
                pairs = [f"{a} to {b} failed" for a, b in self.failed if node in (a, b)]
                proof = "; ".join(pairs) or "nobody was there to test it with"
                self.findings.append(self._finding(FaultKind.INCONCLUSIVE, node, (node,), proof))

    def between_leaves(self) -> Generator[Round, Held, None]:
        """Every path between two leaves, a cleared node at each end; a failed one again between two others."""
        cleared = {leaf: [node for node in nodes if node in self.good] for leaf, nodes in self.leaves.items()}
        broken: list[Two] = []
        for meeting in round_robin([leaf for leaf, nodes in cleared.items() if nodes]):
            first = {pair: (cleared[pair[0]][0], cleared[pair[1]][0]) for pair in meeting}
            held = yield tuple(first.values())
            again = {
                pair: (cleared[pair[0]][-1], cleared[pair[1]][-1]) for pair, ends in first.items() if not held[ends]
            }
            if again:
                second = yield tuple(again.values())
                broken += [pair for pair, ends in again.items() if not second[ends]]
        reached = [leaf for leaf, nodes in cleared.items() if nodes]
        for leaf in reached:
            mine = [pair for pair in broken if leaf in pair]
            if len(reached) > 2 and len(mine) == len(reached) - 1:
                proof = f"no path from it to any of {len(mine)} other leaves holds"
                self.findings.append(self._finding(FaultKind.LEAF, leaf, (), proof))
                broken = [pair for pair in broken if leaf not in pair]
        for a, b in broken:
            proof = "two pairs of nodes that pass within their leaves fail across"
            self.findings.append(self._finding(FaultKind.PATH, f"{a} to {b}", (), proof))


def round_robin(names: Sequence[str]) -> Iterator[Round]:
    """Rounds in which every two meet once and nobody twice in a round: the circle method (Kirkman, 1847)."""
    ring: list[str | None] = [*names, None] if len(names) % 2 else [*names]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((a, b) for a, b in pairs if a is not None and b is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def over_rails(findings: Sequence[Finding], rails: int) -> tuple[Finding, ...]:
    """Findings of all rails joined: a node that fails on every rail is one finding, not one a rail.

    One rail of one node is a port or cable; every rail of one node is the node.
    """
    by_node: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.kind is FaultKind.RAIL:
            by_node.setdefault(finding.nodes[0], []).append(finding)
    whole = {node: found for node, found in by_node.items() if rails > 1 and len(found) == rails}
    joined = [
        Finding(
            kind=FaultKind.NODE,
            subject=node,
            nodes=(node,),
            evidence="; ".join(f"{each.subject.split(' of ')[0]}: {each.evidence}" for each in found),
        )
        for node, found in sorted(whole.items())
    ]
    rest = [each for each in findings if not (each.kind is FaultKind.RAIL and each.nodes[0] in whole)]
    return (*joined, *rest)
