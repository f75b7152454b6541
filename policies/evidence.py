"""What a certification run leaves behind: one folder a run, `reports/<UTC time>/`, with everything in `run.json`.

`reports/latest` names the newest. Reports are made from it and from nothing else, so that they can be made again.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from policies.certificate import Certificate, Digests
from policies.drift import DriftReport
from policies.fabric import FabricResult
from policies.gate import GateDecision
from policies.measurement import Examination
from policies.pins import PinSet
from policies.verdict import Verdict
from spec.deployment import CertificateClass, Deployment
from spec.plan import ClusterPlan
from spec.proofs import Proof

LARGEST = 256 * 1024 * 1024
"""Bytes of a run that are read; one of 1,024 nodes and 45 controls has about 60 MiB."""

ID = re.compile(r"[0-9]{8}T[0-9]{6}Z")
"""What a run's folder is called."""

RUN = "run.json"
LATEST = "latest"


class EvidenceError(Exception):
    """A run cannot be read: the message says which and why."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeSummary(_Model):
    """One node of the plan, for reports."""

    name: str
    group: str
    roles: tuple[str, ...]
    machine: str
    rack: str
    gpus: int
    gpu_model: str | None


class PlanSummary(_Model):
    """The plan, as far as a report shows it."""

    name: str
    digest: str
    fabric: str
    rails: int
    link_gbps: float
    nodes: tuple[NodeSummary, ...]
    proofs: tuple[Proof, ...] = ()


class Site(_Model):
    """Where the run took place, and what of it was not real."""

    stack: str
    substrate: str
    certificate_class: CertificateClass
    simulated: tuple[str, ...]


class Award(_Model):
    """What a node got: a certificate, or the reasons why not."""

    envelope: str | None = None
    """The signed envelope, as `muster verify` reads it."""
    certificate: Certificate | None = None
    refused: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.certificate is None) == (not self.refused) or (self.certificate is None) != (self.envelope is None):
            raise ValueError("a node has either a certificate, with its envelope, or reasons why not")
        return self


class Run(_Model):
    """One certification run."""

    version: Literal["muster/run/v1"] = "muster/run/v1"
    id: Annotated[str, Field(pattern=f"^{ID.pattern}$")]
    """The instant of its start, UTC: the name of its folder."""
    started: AwareDatetime
    finished: AwareDatetime
    site: Site
    plan: PlanSummary
    digests: Digests
    pins: PinSet | None = None
    examinations: tuple[Examination, ...]
    verdicts: tuple[Verdict, ...]
    fabric: FabricResult | None = None
    awards: dict[str, Award]
    """By node."""
    gate: GateDecision | None = None
    drift: DriftReport | None = None
    topology: Annotated[str, Field(max_length=4 * 1024 * 1024)] | None = None
    """The plan's drawing, SVG."""


def run_id(started: datetime) -> str:
    """The id of a run that started then. Raises ValueError without a time zone."""
    if started.tzinfo is None:
        raise ValueError("an instant needs its time zone")
    return started.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def summarise(plan: ClusterPlan, proofs: Iterable[Proof] = ()) -> PlanSummary:
    """A plan and its proofs, as a run keeps them."""
    return PlanSummary(
        name=plan.name,
        digest=plan.digest,
        fabric=plan.fabric_kind.value,
        rails=plan.spec.networks.fabric.rails,
        link_gbps=plan.spec.networks.fabric.link_gbps,
        nodes=tuple(
            NodeSummary(
                name=node.name,
                group=node.group,
                roles=tuple(role.value for role in node.roles),
                machine=node.machine.value,
                rack=node.rack,
                gpus=node.gpus.count if node.gpus else 0,
                gpu_model=node.gpus.model if node.gpus else None,
            )
            for node in plan.nodes
        ),
        proofs=tuple(proofs),
    )


def site(deployment: Deployment) -> Site:
    """A deployment, as a run keeps it: without paths, which say more of a person's machine than a report should."""
    return Site(
        stack=deployment.stack,
        substrate=deployment.substrate.value,
        certificate_class=deployment.certificate_class,
        simulated=deployment.simulated,
    )


def save(run: Run, reports: Path, now: datetime) -> Path:
    """Writes a run and makes it the latest; returns its folder. Whoever reads meanwhile sees the old or the new one.

    A run that is saved again replaces itself, and is the latest only if no newer one is there. One that is dated after
    `now` is not newer: a clock was wrong, and it would be the latest until then.
    """
    folder = reports / run.id
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / RUN, json.dumps(run.model_dump(mode="json"), indent=1))
    names = [each.parent.name for each in reports.glob(f"*/{RUN}") if not each.parent.is_symlink()]
    if not any(run.id < name <= run_id(now) for name in names if ID.fullmatch(name)):
        scratch = reports / f".{LATEST}.{os.getpid()}"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(run.id)
        scratch.replace(reports / LATEST)
    return folder


def load(folder: Path) -> Run:
    """The run in a folder, as in `reports/latest`. Raises EvidenceError."""
    path = folder / RUN
    try:
        if path.stat().st_size > LARGEST:
            raise EvidenceError(f"{path}: larger than {LARGEST} bytes; it is not a run of Muster")
        return Run.model_validate_json(path.read_bytes())
    except OSError as missing:
        raise EvidenceError(f"{path}: {missing.strerror}; run muster certify first") from missing
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise EvidenceError(f"{path}: {where}: {first['msg']}; it was edited or is of another version") from broken


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a file so that it is there whole or not at all, also after a power cut. Raises OSError, with the path."""
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(handle, mode)
                file.write(text)
                file.flush()
                os.fsync(handle)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
        sync(path.parent)
    except OSError as broken:
        raise OSError(broken.errno, broken.strerror, str(path)) from broken


def sync(folder: Path) -> None:
    """Makes a folder's names last: else a power cut may take back a rename whose file is on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
