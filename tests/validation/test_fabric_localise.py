"""What the search for a bad node, leaf or path promises, against fabrics with faults put in."""

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.fabric import FaultKind as Kind
from policies.fabric import Finding
from validation.fabric.localise import localise, over_rails, round_robin


def fabric(leaves: int, nodes: int) -> dict[str, list[str]]:
    return {f"leaf-{i}": [f"gpu-{i * nodes + j}" for j in range(nodes)] for i in range(leaves)}


def search(leaves, bad_nodes=(), bad_paths=(), down=frozenset()):
    """Runs the search against a fabric with faults; returns findings and rounds."""
    home = {node: leaf for leaf, nodes in leaves.items() for node in nodes}
    steps = localise(0, leaves, down)
    rounds = []
    try:
        asked = next(steps)
        while True:
            rounds.append(asked)
            held = {
                (a, b): not ({a, b} & {*bad_nodes, *down}) and frozenset((home[a], home[b])) not in bad_paths
                for a, b in asked
            }
            asked = steps.send(held)
    except StopIteration as end:
        return end.value, rounds


shapes = st.tuples(st.integers(1, 6), st.integers(1, 9)).filter(lambda shape: shape[0] * shape[1] > 1)


@given(shapes)
def test_a_healthy_fabric_has_no_finding(shape):
    findings, _ = search(fabric(*shape))
    assert findings == ()


@given(shapes)
def test_nobody_is_in_two_tests_of_a_round(shape):
    leaves = fabric(*shape)
    first = next(iter(leaves.values()))[0]
    for bad in ((), (first,)):
        for asked in search(leaves, bad)[1]:
            names = [name for pair in asked for name in pair]
            assert len(names) == len(set(names))


@given(shapes, st.data())
def test_with_two_thirds_of_nodes_good_no_good_node_is_ever_blamed(shape, data):
    leaves = fabric(*shape)
    everyone = [node for nodes in leaves.values() for node in nodes]
    bad = data.draw(st.sets(st.sampled_from(everyone), max_size=len(everyone) // 3))
    findings, _ = search(leaves, bad)
    named = {node for each in findings if each.kind is not Kind.INCONCLUSIVE for node in each.nodes}
    assert named <= bad
    kept_out = {node for each in findings for node in each.nodes}
    assert bad <= kept_out, "a bad node is always kept out, named or inconclusive"


@given(st.integers(2, 5), st.integers(4, 9), st.data())
def test_one_bad_node_among_many_is_named(leaf_count, nodes, data):
    leaves = fabric(leaf_count, nodes)
    bad = data.draw(st.sampled_from([node for each in leaves.values() for node in each]))
    findings, _ = search(leaves, {bad})
    assert [(each.kind, each.nodes) for each in findings] == [(Kind.RAIL, (bad,))]


@given(st.integers(2, 6), st.integers(2, 6), st.data())
def test_a_bad_path_is_named_and_no_node_blamed(leaf_count, nodes, data):
    leaves = fabric(leaf_count, nodes)
    a, b = data.draw(st.sampled_from(list(combinations(leaves, 2))))
    assume(nodes % 2 == 0 or leaf_count > 2)  # else the odd nodes meet over the bad path before anybody is cleared
    findings, _ = search(leaves, bad_paths={frozenset((a, b))})
    paths = [each for each in findings if each.kind is Kind.PATH]
    assert [set(each.subject.split(" to ")) for each in paths] == [{a, b}]
    assert all(each.nodes == () for each in findings)


def test_a_leaf_cut_off_from_all_others_is_one_finding():
    leaves = fabric(4, 4)
    cut = {frozenset(("leaf-2", other)) for other in leaves if other != "leaf-2"}
    findings, _ = search(leaves, bad_paths=cut)
    assert [(each.kind, each.subject) for each in findings] == [(Kind.LEAF, "leaf-2")]


def test_two_nodes_that_cannot_talk_are_inconclusive_and_both_kept_out():
    findings, _ = search(fabric(1, 2), {"gpu-1"})
    assert {each.kind for each in findings} == {Kind.INCONCLUSIVE}
    assert {node for each in findings for node in each.nodes} == {"gpu-0", "gpu-1"}


def test_a_node_whose_port_is_down_is_named_without_a_test():
    findings, rounds = search(fabric(1, 4), down=frozenset({"gpu-2"}))
    assert [(each.kind, each.nodes) for each in findings] == [(Kind.RAIL, ("gpu-2",))]
    assert all("gpu-2" not in pair for asked in rounds for pair in asked)


def test_a_lone_node_with_nobody_to_test_it_is_not_cleared():
    findings, rounds = search(fabric(1, 2), down=frozenset({"gpu-0"}))
    assert rounds == []
    assert {(each.kind, each.nodes) for each in findings} == {
        (Kind.RAIL, ("gpu-0",)),
        (Kind.INCONCLUSIVE, ("gpu-1",)),
    }


@given(st.integers(0, 12))
def test_in_a_round_robin_every_two_meet_once(count):
    names = [f"leaf-{i}" for i in range(count)]
    met = [frozenset(pair) for meeting in round_robin(names) for pair in meeting]
    assert sorted(met, key=sorted) == sorted((frozenset(pair) for pair in combinations(names, 2)), key=sorted)


@pytest.mark.parametrize(("bad_rails", "names"), [({0, 1}, ["gpu-3"]), ({1}, ["rail 1 of gpu-3"])])
def test_a_node_bad_on_every_rail_is_one_finding(bad_rails, names):
    found = []
    for rail in (0, 1):
        steps = localise(rail, fabric(1, 6))
        try:
            asked = next(steps)
            while True:
                asked = steps.send({pair: not (rail in bad_rails and "gpu-3" in pair) for pair in asked})
        except StopIteration as end:
            found += end.value
    assert [each.subject for each in over_rails(found, 2)] == names


def test_evidence_of_many_rails_and_long_names_is_told_as_far_as_it_fits():
    name, proof = "g" * 44, "fails with " + " and ".join(["h" * 44, "i" * 44]) + ", which both passed with others"
    each = [Finding(kind=Kind.RAIL, subject=f"rail {i} of {name}", nodes=(name,), evidence=proof) for i in range(16)]
    (joined,) = over_rails(each, 16)
    assert joined.nodes == (name,)
    assert joined.evidence.startswith("rail 0: fails with")
