"""Power: two feeds for every rack, each able to carry all of it."""

from spec.plan import ClusterPlan
from spec.proofs.proof import Proof
from spec.schema import MachineKind


def feeds(plan: ClusterPlan) -> Proof:
    """Whether every rack is fed from two PDUs behind different UPSes."""
    behind = {pdu.name: pdu.ups for pdu in plan.spec.facility.pdus}
    single = [i for i, rack in enumerate(plan.spec.facility.racks) if len({behind[pdu] for pdu in rack.pdus}) < 2]
    rack = plan.spec.facility.racks[single[0] if single else 0]
    return Proof(
        id="power.feeds",
        title="Every rack is fed through two UPSes",
        holds=not single,
        numbers={"racks": len(plan.spec.facility.racks), "with_one_feed": len(single)},
        message=f"{rack.name} depends on {behind[rack.pdus[0]]} alone" if single else "no rack depends on one UPS",
        advice="feed it from two PDUs behind different UPSes",
        fields=(
            f"facility.racks[{single[0] if single else 0}].pdus",
            "facility.racks",
            "facility.pdus",
        ),
    )


def capacity(plan: ClusterPlan) -> Proof:
    """Whether every PDU carries its share, also after the loss of any one PDU or UPS.

    A rack draws what its nodes draw at most, in equal parts from its PDUs that are left. Lab machines draw nothing of
    their own; a host whose `kw` is not declared cannot be proved, which is no proof.
    """
    facility = plan.spec.facility
    unknown = [i for i, group in enumerate(plan.spec.nodes) if group.machine is MachineKind.HOST and group.kw is None]
    draw = {rack.name: 0.0 for rack in facility.racks}
    declared = {group.name: group.kw or 0.0 for group in plan.spec.nodes}
    for node in plan.nodes:
        draw[node.rack] += declared[node.group]
    losses = {"nothing": {""}, **{pdu.name: {pdu.name} for pdu in facility.pdus}}
    losses |= {pdu.ups: {each.name for each in facility.pdus if each.ups == pdu.ups} for pdu in facility.pdus}
    racks_of = {pdu.name: [rack for rack in facility.racks if pdu.name in rack.pdus] for pdu in facility.pdus}
    worst, name, lost_name, load = 0.0, facility.pdus[0].name, "nothing", 0.0
    for what, lost in losses.items():
        for pdu in facility.pdus:
            if pdu.name in lost:
                continue
            carried = sum(draw[rack.name] / len(set(rack.pdus) - lost) for rack in racks_of[pdu.name])
            if carried / pdu.kw > worst:
                worst, name, lost_name, load = carried / pdu.kw, pdu.name, what, carried
    kw = next(pdu.kw for pdu in facility.pdus if pdu.name == name)
    blamed = f"nodes[{unknown[0]}].kw" if unknown else _pdu_field(plan, name)
    groups = tuple(
        f"nodes[{i}].{key}"
        for i in range(len(plan.spec.nodes))
        for key in ("kw", "count", "machine", "racks", "racking")
    )
    return Proof(
        id="power.capacity",
        title="Every PDU carries its racks, with any one PDU or UPS lost",
        holds=not unknown and worst <= 1,
        numbers={
            "total_kw": round(sum(draw.values()), 3),
            "pdu": name,
            "without": lost_name,
            "load_kw": round(load, 3),
            "kw": kw,
        },
        message="not declared: what a host draws is needed to prove that its PDUs carry it"
        if unknown
        else f"{name} carries {load:.4g} of its {kw:g} kW without {lost_name}",
        advice="give kW from the data sheet" if unknown else f"feed fewer nodes from {name}, or use a larger one",
        fields=(blamed, *(field for field in groups if field != blamed), "facility.pdus", "facility.racks"),
    )


def _pdu_field(plan: ClusterPlan, name: str) -> str:
    return f"facility.pdus[{[pdu.name for pdu in plan.spec.facility.pdus].index(name)}].kw"


PROOFS = (feeds, capacity)
