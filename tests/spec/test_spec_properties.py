"""What holds for every spec that can be written."""

import tempfile
from collections import Counter
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec.document import parse
from spec.draw import draw
from spec.load import SpecErrors, dump, examine, load
from spec.plan import derive
from spec.proofs import prove
from spec.proofs.check import check
from spec.schema import Cluster

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)


@st.composite
def specs(draw_: st.DrawFn) -> Cluster:
    """Specs that the loader takes; whether their design can work is another question."""
    rails = draw_(st.integers(1, 8))
    kind = draw_(st.sampled_from(["roce", "infiniband", "efa", "tcp"]))
    racks = draw_(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    groups = draw_(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    nodes = []
    for name in groups:
        roles = draw_(st.lists(st.sampled_from(["control", "storage", "compute"]), min_size=1, max_size=3, unique=True))
        compute = "compute" in roles
        nodes.append(
            {
                "name": name,
                "count": draw_(st.integers(1, 12)),
                "roles": roles,
                "machine": draw_(st.sampled_from(["host", "vm", "container"])),
                "racks": draw_(st.lists(st.sampled_from(racks), min_size=1, max_size=3)),
                "racking": draw_(st.sampled_from(["spread", "fill"])),
                "nics": {"fabric": draw_(st.sampled_from([0, rails])) if compute else 0},
                **(
                    {"gpus": {"model": draw_(st.sampled_from(["H100", "B200 <x>"])), "count": 8, "memory_gib": 80}}
                    if compute
                    else {}
                ),
            }
        )
    fabric = {
        "kind": kind,
        "rails": rails,
        "cidr": "10.64.0.0/12",
        "link_gbps": draw_(st.sampled_from([1, 100, 400])),
        "leaves": draw_(st.integers(1, 20)),
        "leaf_ports": 64,
        "spines": draw_(st.integers(0, 8)),
        "spine_ports": 64,
        "uplinks": draw_(st.integers(0, 16)),
    }
    plane = {"link_gbps": 10, "bond": {"links": draw_(st.integers(1, 4))}, "switches": draw_(st.integers(1, 4))}
    return Cluster.model_validate(
        {
            "apiVersion": "muster/v1",
            "name": draw_(NAMES),
            "substrate": "static",
            "networks": {
                "fabric": fabric,
                "storage": {"cidr": "10.80.0.0/20", **plane},
                "management": {"cidr": "10.96.0.0/20", **plane},
            },
            "nodes": nodes,
            "filesystem": {
                "osd_gib": draw_(st.floats(1, 1e6)),
                "replicas": draw_(st.integers(1, 4)),
                "failure_domain": draw_(st.sampled_from(["host", "rack", "pdu"])),
                "monitors": draw_(st.integers(1, 5)),
            },
            "facility": {
                "racks": [{"name": rack, "pdus": draw_(st.sampled_from([["p1"], ["p1", "p2"]]))} for rack in racks],
                "pdus": [{"name": "p1", "ups": "u1"}, {"name": "p2", "ups": draw_(st.sampled_from(["u1", "u2"]))}],
            },
            "pins": "lab",
        }
    )


many = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(specs())
def test_addresses_are_unique_and_inside_their_subnet(cluster):
    plan = derive(cluster)
    subnets = {subnet.plane: subnet.network for subnet in plan.subnets}
    seen = Counter(each.address.ip for node in plan.nodes for each in node.interfaces)
    assert all(count == 1 for count in seen.values())
    for node in plan.nodes:
        for each in node.interfaces:
            assert each.address.ip in subnets[each.plane]
            assert each.address.network == subnets[each.plane]
    macs = [each.mac for node in plan.nodes for each in node.interfaces]
    assert len(set(macs)) == len(macs)


@many
@given(specs())
def test_every_leaf_carries_one_rail_and_nodes_that_have_it_and_each_end_is_on_at_most_one(cluster):
    plan = derive(cluster)
    ends = Counter()
    for leaf in plan.switches.leaves:
        assert 0 <= leaf.rail < cluster.networks.fabric.rails
        assert leaf.downlink_gbps == len(leaf.nodes) * cluster.networks.fabric.link_gbps
        assert set(leaf.uplinks) <= set(plan.switches.spines)
        for name in leaf.nodes:
            assert plan.node(name).interface(f"rail-{leaf.rail}") is not None
            ends[leaf.rail, name] += 1
    assert all(count == 1 for count in ends.values())


@many
@given(specs(), st.integers(1, 16))
def test_more_uplinks_never_make_oversubscription_worse(cluster, more):
    fabric = cluster.networks.fabric
    wider = fabric.model_copy(update={"uplinks": fabric.uplinks + more})
    other = cluster.model_copy(update={"networks": cluster.networks.model_copy(update={"fabric": wider})})
    before, after = derive(cluster).switches, derive(other).switches
    for leaf, wide in zip(before.leaves, after.leaves, strict=True):
        if leaf.nodes:
            assert wide.oversubscription <= leaf.oversubscription


@many
@given(specs())
def test_a_plan_its_proofs_and_its_picture_depend_on_the_spec_alone(cluster):
    again = Cluster.model_validate_json(cluster.model_dump_json(by_alias=True))
    one, two = derive(cluster), derive(again)
    assert one == two
    assert prove(one) == prove(two)
    assert draw(one) == draw(two)


@many
@given(specs())
def test_a_spec_written_and_read_is_the_same_and_so_are_its_proofs(cluster):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.yaml")
        path.write_text(dump(cluster))
        assert load(path) == cluster
        found = check(path)
    assert found.proofs == prove(derive(cluster))
    assert len(found.errors) == sum(not proof.accepted for proof in found.proofs)
    assert all(error.line >= 1 for error in found.errors)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@many
@given(specs(), st.data())
def test_whatever_replaces_a_part_of_a_spec_the_loader_answers_with_errors_and_never_fails(cluster, data):
    spec = cluster.model_dump(mode="json", by_alias=True)
    where, part = [], spec
    while isinstance(part, dict | list) and part and (not where or data.draw(st.booleans())):
        key = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        where.append(key)
        part = part[key]
    target = spec
    for step in where[:-1]:
        target = target[step]
    if data.draw(st.booleans()):
        target[where[-1]] = data.draw(JSON)
    elif isinstance(target, dict):
        target["unheard-of"] = target.pop(where[-1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.yaml")
        path.write_text(yaml.safe_dump(spec, allow_unicode=True))
        lines = len(path.read_text().splitlines())
        try:
            found = check(path).errors
        except SpecErrors as errors:
            found = errors.errors
            assert found
        assert all(1 <= error.line <= lines and error.what for error in found)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_file_whatever_makes_the_loader_fail(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.yaml")
        path.write_bytes(content)
        loaded = examine(path)
    assert loaded.cluster is None
    assert loaded.errors


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:- \n[]{},#&*!|>'\"%@`?0.", max_size=60))
def test_what_looks_like_yaml_is_read_or_refused(text):
    document = parse(text)
    if document.data is None:
        assert [fault.field for fault in document.faults] == [""]
    else:
        assert isinstance(document.data, dict)
        assert set(document.lines) >= {(key,) for key in document.data}
