"""A design that breaks one promise is refused by the proof of that promise, and by no other."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from spec.document import unwritten
from spec.load import load, locate
from spec.plan import derive
from spec.proofs import prove
from spec.proofs.check import check
from spec.schema import Cluster

FABRIC, STORAGE, MANAGEMENT = (("networks", name) for name in ("fabric", "storage", "management"))
CONTROL, STORES, GPUS = (("nodes", i) for i in range(3))


def sets(*where: Any, **values: Any) -> Callable[[Any], None]:
    """A change that gives some keys of one part other values."""

    def change(spec: Any) -> None:
        for step in where:
            spec = spec[step]
        for key, value in values.items():
            if isinstance(value, dict) and isinstance(spec.get(key), dict):
                spec[key].update(value)
            else:
                spec[key] = value

    return change


def each_rack(**values: Any) -> Callable[[Any], None]:
    """A change that gives the racks of storage nodes other values."""

    def change(spec: Any) -> None:
        for rack in spec["facility"]["racks"][:5]:
            rack.update(values)

    return change


# proof: what breaks it, and the proofs that cannot but fail with it
BROKEN: dict[str, tuple[Callable[[Any], None], set[str]]] = {
    "nodes.roles": (sets(*CONTROL, roles=["storage"]), set()),
    "nodes.gpus": (sets(*GPUS, gpus=None), set()),
    "addresses.disjoint": (sets(*STORAGE, cidr="10.96.0.0/16"), set()),
    "addresses.room": (sets(*MANAGEMENT, cidr="10.96.0.0/28"), set()),
    "fabric.rails": (sets(*GPUS, nics={"fabric": 1, "rdma_devices": []}), set()),
    "fabric.leaves": (sets(*FABRIC, leaves=5), set()),
    "fabric.leaf_ports": (sets(*FABRIC, leaf_ports=3), set()),
    "fabric.spine_ports": (sets(*FABRIC, spine_ports=1), set()),
    "fabric.oversubscription": (sets(*FABRIC, uplink_gbps=50), set()),
    "fabric.spine_loss": (sets(*FABRIC, spines=2), set()),
    "storage.switch_ports": (sets(*STORAGE, switch_ports=4), set()),
    "storage.redundancy": (sets(*GPUS, nics={"storage": 1}), set()),
    "storage.oversubscription": (sets(*STORAGE, uplink_gbps=100), set()),
    "management.switch_ports": (sets(*MANAGEMENT, switch_ports=4), set()),
    "management.redundancy": (sets(*GPUS, nics={"management": 1}), set()),
    "management.oversubscription": (sets(*MANAGEMENT, uplink_gbps=40), set()),
    "management.adapter": (sets(*GPUS, nics={"management_adapter": "fabric"}), set()),
    "mtu.filesystem": (sets("filesystem", mtu=1500), set()),
    "mtu.switches": (sets(*STORAGE, switch_mtu=8999), set()),
    "mtu.rdma": (sets(*FABRIC, mtu=4191), set()),
    "fabric.lossless": (sets(*FABRIC, lossless={"dscp": 10}), set()),
    "ports.services": (lambda spec: spec.update(pool={"srun_ports": "6000-7000"}), set()),
    "ports.jobs": (sets(*FABRIC, job_ports="6000-7000"), set()),
    "ports.ephemeral": (lambda spec: spec.update(pool={"srun_ports": "60001-61000"}), set()),
    "filesystem.copies": (sets("filesystem", failure_domain="pdu"), set()),
    "filesystem.quorum": (sets("filesystem", monitors=4), set()),
    "filesystem.monitors": (sets("filesystem", monitors=7), set()),
    "filesystem.standby": (sets("filesystem", metadata_servers={"active": 2, "standby": 1}), set()),
    "filesystem.metadata_servers": (sets("filesystem", metadata_servers={"active": 4, "standby": 4}), set()),
    "filesystem.capacity": (sets("filesystem", checkpoints=1000), set()),
    # a rack holds its hosts, and a cooling zone its racks
    "survival.host": (sets("filesystem", replicas=1), {"survival.rack", "survival.cooling"}),
    "survival.rack": (
        lambda spec: (sets("filesystem", failure_domain="host")(spec), sets(*STORES, racks=["s1", "s2", "s3"])(spec)),
        {"survival.cooling"},
    ),
    "survival.cooling": (sets("facility", "racks", 1, cooling_zone="z1"), set()),
    "survival.switch": (sets(*STORES, nics={"storage": 1}), {"storage.redundancy"}),
    "survival.pdu": (each_rack(pdus=["p1"]), {"survival.ups", "power.feeds"}),
    "survival.ups": (sets("facility", "pdus", 1, ups="u1"), {"power.feeds"}),
    "power.feeds": (sets("facility", "racks", 5, pdus=["p3"]), set()),
    "power.capacity": (sets("facility", "pdus", 3, kw=40), set()),
    "spec.exceptions": (
        lambda spec: spec.update(exceptions=[{"proof": "mtu.rdma", "reason": "no reason at all"}]),
        set(),
    ),
}


def proofs(spec: Any):
    return prove(derive(Cluster.model_validate(spec)))


def failed(spec: Any) -> set[str]:
    return {proof.id for proof in proofs(spec) if not proof.holds}


def test_a_good_design_holds_every_proof(site):
    assert failed(site) == set()


def test_every_proof_has_a_design_here_that_breaks_it(site):
    ids = [proof.id for proof in proofs(site)]
    assert sorted(BROKEN) == sorted(ids)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("proof", BROKEN)
def test_a_broken_promise_is_caught_by_its_proof_and_no_other(site, proof):
    change, implied = BROKEN[proof]
    change(site)
    assert failed(site) == {proof, *implied}


@pytest.mark.parametrize("proof", BROKEN)
def test_a_failed_proof_blames_a_field_that_the_breaker_touched_or_that_can_repair_it(site, written, proof):
    whole = copy.deepcopy(site)
    BROKEN[proof][0](site)
    path = written(site)
    found = next(each for each in check(path).proofs if each.id == proof)
    touched = differences(whole, site)
    assert any(near(unwritten(field), where) for field in found.fields for where in touched)
    assert locate(path, found.fields[0]) > 1
    assert found.message
    assert found.advice
    assert found.numbers


def test_a_proof_names_every_field_that_it_depends_on(site):
    """So that a spec with an error elsewhere can still be told of its other faults, and never of one that is none."""
    before = {proof.id: proof for proof in proofs(site)}
    for change, _ in BROKEN.values():
        other = copy.deepcopy(site)
        change(other)
        touched = differences(site, other)
        for proof in proofs(other):
            if proof.holds != before[proof.id].holds:
                fields = [unwritten(field) for field in proof.fields]
                assert any(near(field, where) for field in fields for where in touched), (proof.id, touched)


def differences(one: Any, other: Any, where: tuple = ()) -> set[tuple]:
    """The paths at which two specs differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = {*one, *other}
        return {path for key in keys for path in differences(one.get(key), other.get(key), (*where, key))}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return {path for i, (a, b) in pairs for path in differences(a, b, (*where, i))}
    return set() if one == other else {where}


def near(field: tuple, other: tuple) -> bool:
    return field[: len(other)] == other or other[: len(field)] == field


def test_a_lossless_class_that_is_missing_on_roce_or_declared_elsewhere_is_refused(site):
    del site["networks"]["fabric"]["lossless"]
    assert failed(site) == {"fabric.lossless"}
    site["networks"]["fabric"].update(kind="infiniband", lossless={})
    assert failed(site) == {"fabric.lossless"}
    del site["networks"]["fabric"]["lossless"]
    assert failed(site) == set()


@pytest.mark.parametrize(
    ("srun", "jobs", "broken"),
    [
        ("61001-62000", "50000-51000", set()),
        ("61001-62000", "32768-60999", set()),
        ("62001-63000", "61001-62000", set()),
        ("6819-6829", "50000-51000", set()),
        ("1024-2048", "50000-51000", set()),
        ("500-1500", "50000-51000", {"ports.services"}),
        ("1-22", "50000-51000", {"ports.services"}),
        ("6817", "50000-51000", {"ports.services"}),
        ("6818", "50000-51000", {"ports.services"}),
        ("61001-62000", "62000-63000", {"ports.jobs"}),
        ("61001-62000", "1000-2000", {"ports.jobs"}),
        ("61001-62000", "6000-6818", {"ports.jobs"}),
        ("60999-62000", "50000-51000", {"ports.ephemeral"}),
        ("32000-32768", "50000-51000", {"ports.ephemeral"}),
        ("50500-50600", "50000-51000", {"ports.jobs", "ports.ephemeral"}),
        ("6817-62000", "50000-51000", {"ports.services", "ports.jobs", "ports.ephemeral"}),
    ],
)
def test_sruns_ports_the_jobs_the_services_and_the_kernels_do_not_overlap(site, srun, jobs, broken):
    """At their very ends too."""
    site["pool"] = {"srun_ports": srun}
    site["networks"]["fabric"]["job_ports"] = jobs
    assert failed(site) == broken


def test_sruns_ports_matter_only_where_slurm_is(site):
    site["pool"] = {"scheduler": "kubernetes", "srun_ports": "22-51000"}
    assert failed(site) == set()


def test_where_every_node_runs_jobs_the_ephemeral_ports_are_theirs(site):
    """Then the kernel gives out no others anywhere."""
    site["nodes"][0]["roles"] = ["control", "compute"]
    site["nodes"][0] |= {key: site["nodes"][2][key] for key in ("gpus", "nics")}
    site["pool"] = {"srun_ports": "40000-41000"}
    assert "ports.ephemeral" not in failed(site)


def test_a_host_whose_power_is_not_declared_is_not_proved(site):
    del site["nodes"][2]["kw"]
    assert failed(site) == {"power.capacity"}


def test_a_single_leaf_a_rail_needs_neither_uplinks_nor_spines(site):
    site["networks"]["fabric"].update(leaves=2, uplinks=0, spines=0)
    assert failed(site) == set()
    site["networks"]["fabric"].update(leaves=4)
    assert failed(site) == {"fabric.oversubscription", "fabric.spine_loss"}
    site["networks"]["fabric"].update(uplinks=2)
    assert "fabric.spine_ports" in failed(site)


def test_two_switches_that_every_node_is_on_need_no_uplinks_and_more_do(site):
    del site["networks"]["storage"]["uplink_gbps"]
    assert failed(site) == {"storage.oversubscription"}
    site["networks"]["storage"]["switches"] = 2
    assert failed(site) == set()


def test_containers_cannot_claim_the_bonds_that_they_cannot_have(site):
    for group in site["nodes"]:
        group["machine"] = "container"
    assert {"storage.redundancy", "management.redundancy", "survival.switch"} <= failed(site)


def test_an_exception_keeps_the_failure_and_its_reason_in_sight(site, written):
    site["networks"]["fabric"]["mtu"] = 1500
    site["exceptions"] = [{"proof": "mtu.rdma", "reason": "the switches of the old hall carry no more"}]
    found = check(written(site))
    assert found.errors == ()
    (excepted,) = (proof for proof in found.proofs if not proof.holds)
    assert (excepted.id, excepted.accepted) == ("mtu.rdma", True)
    assert excepted.exception == "the switches of the old hall carry no more"


def test_an_exception_for_what_holds_or_does_not_exist_refuses_the_design(site, written):
    for proof, says in (("mtu.rdma", "holds"), ("mtu.rmda", "no proof")):
        site["exceptions"] = [{"proof": proof, "reason": "a reason of some length"}]
        (error,) = check(written(site)).errors
        assert error.field == "exceptions[0].proof"
        assert says in error.what


def test_an_exception_cannot_except_itself(site):
    site["exceptions"] = [{"proof": "spec.exceptions", "reason": "a reason of some length"}]
    found = {proof.id: proof for proof in proofs(site)}
    assert not found["spec.exceptions"].accepted


def test_a_refused_design_is_printed_as_people_know_it(site, written):
    site["filesystem"]["mtu"] = 1500
    site["nodes"][2]["nics"].update(fabric=1, rdma_devices=[])
    path = written(site)
    mtu, nics = check(path).errors
    assert str(mtu) == (
        f"{path}:{locate(path, 'networks.storage.mtu')}: networks.storage.mtu: 9000, but the filesystem declares 1500\n"
        "    set it to 1500 here, or filesystem.mtu to 9000"
    )
    assert str(nics).splitlines()[0].endswith("nodes[2].nics.fabric: 1 NICs, but fabric.rails is 2")


@pytest.mark.parametrize("name", ["lab", "lab-containers", "lab-wide", "h100-roce-1024"])
def test_every_spec_that_ships_is_accepted_and_states_what_it_lacks(clusters, name):
    found = check(clusters / f"{name}.yaml")
    assert found.errors == ()
    assert {proof.id for proof in found.proofs if not proof.holds} == {
        each.proof for each in load(clusters / f"{name}.yaml").exceptions
    }


def test_the_large_example_needs_no_exception(clusters):
    assert load(clusters / "h100-roce-1024.yaml").exceptions == ()


def test_monitors_visit_every_rack_before_they_visit_one_again(site):
    site["nodes"][1].update(count=6, racks=["s1", "s2", "s3"], racking="fill")
    plan = derive(Cluster.model_validate(site))
    racks = [plan.node(name).rack for name in plan.placement.monitors]
    assert sorted(racks) == ["s1", "s2", "s3"]
