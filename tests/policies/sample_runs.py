"""Nodes, candidates and runs for the tests of this room, all made from clusters/lab-containers.yaml."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner

from policies import design
from policies.certificate import Digests, verify
from policies.evidence import Award, Run, run_id, site, summarise
from policies.fabric import FabricResult, PairTest, Sweep, SweepPoint
from policies.gate import gate
from policies.issue import Candidate, Refused, issue
from policies.measurement import Examination, Measurement, Outcome
from policies.pins import load_pins
from policies.refusal import Refusal
from policies.verdict import Severity, State, Verdict
from spec.deployment import CertificateClass, Deployment
from spec.load import load
from spec.plan import ClusterPlan, derive
from spec.schema import Cluster, Role, Substrate

NOW = datetime(2026, 11, 29, 14, 20, tzinfo=UTC)
LAB = Path(__file__).parents[2] / "clusters" / "lab-containers.yaml"
SIGNER = CryptoSigner.generate_ed25519()
STRANGER = CryptoSigner.generate_ed25519()
CONTROLS = ("gpu.count", "gpu.ecc.uncorrected", "kernel.uptime", "time.offset")


def cluster(**nodes: int) -> Cluster:
    """The lab, with other counts of some node groups and room for them."""
    spec = load(LAB).model_dump(by_alias=True)
    for group in spec["nodes"]:
        group["count"] = nodes.get(group["name"], group["count"])
    if nodes:
        spec["networks"]["fabric"]["cidr"] = "10.80.0.0/16"
        spec["networks"]["storage"]["cidr"] = "10.81.0.0/16"
        spec["networks"]["management"]["cidr"] = "10.82.0.0/16"
    return Cluster.model_validate(spec)


def replan(plan: ClusterPlan, **changed: Any) -> ClusterPlan:
    """The plan with other parts; built anew, since a plan remembers what it looked up."""
    return ClusterPlan(**{name: getattr(plan, name) for name in ClusterPlan.model_fields} | changed)


PLAN = derive(cluster())
DIGESTS = Digests(spec=PLAN.digest, pins=load_pins("lab").digest, suite="b" * 64, catalogue="c" * 64)


def deployment(plan: ClusterPlan = PLAN, **changed: Any) -> Deployment:
    told: dict[str, Any] = {
        "name": plan.name,
        "stack": "lab",
        "substrate": Substrate.LAB,
        "certificate_class": CertificateClass.LAB,
        "spec": LAB,
        "spec_digest": plan.digest,
        "state": Path("/nowhere/state"),
        "ssh_config": Path("/nowhere/state/ssh/config"),
        "nodes": tuple(node.name for node in plan.nodes),
        "simulated": ("GPUs are simulated", "rails carry TCP"),
    }
    return Deployment.model_validate(told | changed)


def identity(node: str, gpus: int = 8) -> dict[str, Any]:
    number = sum(node.encode()) * 65537
    return {
        "machine_id": f"{number:032x}",
        "macs": [f"02:00:00:00:{number >> 8 & 255:02x}:{number & 255:02x}"],
        "gpus": [f"GPU-{number:08x}-{i:04d}-4000-8000-000000000000" for i in range(gpus)],
    }


def examination(node: str = "gpu-0", **changed: Any) -> Examination:
    told: dict[str, Any] = {
        "node": node,
        "started": NOW - timedelta(minutes=1),
        "finished": NOW - timedelta(seconds=30),
        "complete": True,
        "suite_digest": DIGESTS.suite,
        "identity": identity(node, 8 if node.startswith("gpu") else 0),
        "measurements": (Measurement(measure="gpu.count", outcome=Outcome.MEASURED, value=8, simulated=True),),
    }
    return Examination.model_validate(told | changed)


def verdict(control: str, node: str = "gpu-0", state: State = State.PASS, **changed: Any) -> Verdict:
    told: dict[str, Any] = {
        "control": control,
        "node": node,
        "state": state,
        "severity": Severity.CRITICAL,
        "title": f"What {control} asks",
        "expected": "every one is 0",
    }
    return Verdict.model_validate(told | changed)


def verdicts(node: str = "gpu-0", **states: State) -> tuple[Verdict, ...]:
    """A node's verdicts: pass, save what is named with `__` for the dot."""
    named = {key.replace("__", "."): state for key, state in states.items()}
    return tuple(verdict(control, node, named.get(control, State.PASS)) for control in CONTROLS)


def fabric(plan: ClusterPlan = PLAN, **changed: Any) -> FabricResult:
    nodes = tuple(node.name for node in plan.with_role(Role.COMPUTE))
    rails = range(plan.spec.networks.fabric.rails)
    told: dict[str, Any] = {
        "started": NOW - timedelta(seconds=25),
        "finished": NOW - timedelta(seconds=5),
        "nodes": nodes,
        "pairs": tuple(
            PairTest(a=a, b=b, rail=rail, gbps=0.81 + 0.13 * ((i + rail) % 2), floor_gbps=0.8, tool="iperf3")
            for i, (a, b) in enumerate(zip(nodes[::2], nodes[1::2], strict=False))
            for rail in rails
        ),
        "sweeps": (sweep(nodes),),
        "simulated": ("gloo stands in for NCCL",),
        "state": State.PASS,
    }
    return FabricResult.model_validate(told | changed)


def sweep(nodes: tuple[str, ...], **changed: Any) -> Sweep:
    told: dict[str, Any] = {
        "op": "all_reduce",
        "backend": "gloo",
        "ranks": len(nodes) * 8,
        "nodes": nodes,
        "points": tuple(
            SweepPoint(bytes=1024 << i, algbw=0.1 * i / (i + 3), busbw=0.19 * i / (i + 3), wrong=0, repeats=3)
            for i in range(1, 16)
        ),
        "plateau": 0.157,
        "floor": 0.1,
        "floor_source": "80 % of one rail of 1 Gb/s",
    }
    return Sweep.model_validate(told | changed)


def candidate(node: str = "gpu-0", plan: ClusterPlan = PLAN, **changed: Any) -> Candidate:
    found = Candidate(
        plan=plan,
        deployment=deployment(plan),
        node=node,
        examination=examination(node),
        verdicts=verdicts(node),
        controls=frozenset(CONTROLS),
        digests=DIGESTS.model_copy(update={"spec": plan.digest}),
        fabric=fabric(plan),
    )
    return replace(found, **changed)


def run(plan: ClusterPlan = PLAN, judged: tuple[Verdict, ...] | None = None, **changed: Any) -> Run:
    """A whole run over a plan; certificates follow from the verdicts."""
    if judged is None:
        judged = tuple(each for node in plan.nodes for each in verdicts(node.name))
    controls = frozenset(each.control for each in judged)
    result = changed.get("fabric", fabric(plan))
    awards, envelopes, refused = {}, {}, {}
    for node in plan.nodes:
        own = tuple(each for each in judged if each.node == node.name)
        asked = candidate(node.name, plan, verdicts=own, controls=controls, fabric=result)
        try:
            envelope = issue(asked, SIGNER, NOW)
        except Refused as why:
            awards[node.name], refused[node.name] = Award(refused=why.reasons), why.reasons[0]
            continue
        envelopes[node.name] = envelope
        certificate = verify(envelope, [SIGNER.public_key], NOW)
        awards[node.name] = Award(envelope=envelope.decode(), certificate=certificate)
    told: dict[str, Any] = {
        "id": run_id(NOW),
        "started": NOW,
        "finished": NOW + timedelta(seconds=95),
        "site": site(deployment(plan)),
        "plan": summarise(plan, design.proofs(plan)),
        "digests": DIGESTS.model_copy(update={"spec": plan.digest}),
        "pins": load_pins("lab"),
        "examinations": tuple(examination(node.name) for node in plan.nodes),
        "verdicts": judged,
        "fabric": result,
        "awards": awards,
        "gate": gate(
            plan,
            envelopes,
            [SIGNER.public_key],
            CertificateClass.LAB,
            NOW,
            fabric=result,
            pins=DIGESTS.pins,
            images={},
            refused={name: Refusal(node=name, at=NOW, why=why) for name, why in refused.items()},
        ),
    }
    return Run.model_validate(told | changed)
