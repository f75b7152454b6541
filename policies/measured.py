"""How fast collectives were on a cluster's network, from the newest certification run that measured them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from policies.evidence import ID, LARGEST, RUN, PlanSummary
from policies.fabric import REPEATS, FabricResult, Sweep
from spec.plan import ClusterPlan
from spec.workload import Curve, Point

MOST_RUNS = 10
"""Runs that are looked at, the newest first."""


class Measured(NamedTuple):
    """Bus bandwidth of NCCL's all-reduce by size: within one node, and between nodes with all their GPUs."""

    in_node: Curve | None = None
    between: Curve | None = None
    source: str = ""
    passed_over: tuple[str, ...] = ()
    """Runs that are newer and could not be used, each with the reason."""


class _Seen(BaseModel):
    """Of a run, what is needed here: the whole of a large cluster takes seconds to check."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    started: AwareDatetime
    plan: PlanSummary
    fabric: FabricResult | None = None


def measured(reports: Path, plan: ClusterPlan) -> Measured:
    """What the newest run with figures of this network measured. Never raises: what cannot be used is told.

    A run is of this network if its cluster has the same name, kind of fabric, rails and link speed: whatever else of
    the spec was edited since does not change how fast the links are.
    """
    passed_over: list[str] = []
    found = sorted(reports.glob(f"*/*/{RUN}"), key=lambda path: path.parent.name, reverse=True)
    for path in [each for each in found if ID.fullmatch(each.parent.name)][:MOST_RUNS]:
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"larger than {LARGEST} bytes")
            seen = _Seen.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            why = "it is no run of this version of Muster" if isinstance(error, ValidationError) else str(error)
            passed_over.append(f"{path}: {why}")
            continue
        if not _same(seen.plan, plan):
            continue
        usable = curves(seen.fabric.sweeps if seen.fabric else (), f"{path.parent}, {seen.started:%-d %b %Y}")
        if usable.between or usable.in_node:
            return usable._replace(passed_over=tuple(passed_over))
        passed_over.append(f"{path.parent}: {'; '.join(_why(seen.fabric))}")
    return Measured(passed_over=tuple(passed_over))


def curves(sweeps: Sequence[Sweep], where: str) -> Measured:
    """The curves of a run's sweeps: of NCCL's all-reduce over all rails, every element right, every size repeated.

    That it is slower than its floor is no reason against it: then the network is slower than its links promise.
    """
    near = next((each for each in sweeps if _usable(each) and len(each.nodes) == 1), None)
    far = next((each for each in sweeps if _usable(each) and len(each.nodes) > 1), None)
    told = [
        f"{each.ranks} ranks on {len(each.nodes)} node{'s' * (len(each.nodes) > 1)}" for each in (near, far) if each
    ]
    source = f"NCCL's all-reduce, {' and '.join(told)} ({where})" if told else ""
    return Measured(_curve(near, source) if near else None, _curve(far, source) if far else None, source)


def _same(seen: PlanSummary, plan: ClusterPlan) -> bool:
    fabric = plan.spec.networks.fabric
    there = (plan.name, plan.fabric_kind.value, fabric.rails, fabric.link_gbps)
    return (seen.name, seen.fabric, seen.rails, seen.link_gbps) == there


def _usable(sweep: Sweep) -> bool:
    return not tuple(_against(sweep))


def _against(sweep: Sweep) -> Iterator[str]:
    if sweep.backend != "nccl":
        yield f"{sweep.op} ran on {sweep.backend}, not on NCCL"
    elif sweep.op != "all_reduce" or sweep.rail is not None:
        yield f"{sweep.op} is not the all-reduce over all rails"
    elif sweep.reason:
        yield f"{sweep.op}: {sweep.reason}"
    elif sweep.plateau is None or not any(each.busbw for each in sweep.points):
        yield f"{sweep.op}: large messages were not measured"
    elif any(each.wrong or each.repeats < REPEATS for each in sweep.points):
        yield f"{sweep.op}: elements were wrong, or sizes not repeated {REPEATS} times"


def _why(fabric: FabricResult | None) -> list[str]:
    if fabric is None or not fabric.sweeps:
        return ["no collective was run"]
    return list(dict.fromkeys(why for each in fabric.sweeps for why in _against(each)))[:3]


def _curve(sweep: Sweep, source: str) -> Curve:
    rates = {each.bytes: each.busbw for each in sweep.points if each.busbw > 0}
    return Curve(points=tuple(Point(bytes=size, busbw=rates[size]) for size in sorted(rates)), source=source)
