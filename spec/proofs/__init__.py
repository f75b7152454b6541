"""What a design must have before anything is built: `prove(plan)` says for every proof whether it holds.

A spec may name a proof that it knowingly fails under `exceptions`, with a reason. It is still shown as failed; it only
does not refuse the design.
"""

from collections.abc import Callable

from spec.plan import ClusterPlan
from spec.proofs import addresses, fabric, filesystem, packets, planes, ports, power, roles, survival
from spec.proofs.proof import Proof

PROOFS: tuple[Callable[[ClusterPlan], Proof], ...] = (
    *roles.PROOFS,
    *addresses.PROOFS,
    *fabric.PROOFS,
    *planes.PROOFS,
    *packets.PROOFS,
    *ports.PROOFS,
    *filesystem.PROOFS,
    *survival.PROOFS,
    *power.PROOFS,
)
"""Every proof. Adding one is a function here and its place in its family's `PROOFS`."""


def prove(plan: ClusterPlan) -> tuple[Proof, ...]:
    """Every proof of a plan, in a fixed order; the last is that its exceptions are exceptions. Pure."""
    reasons = {each.proof: each.reason for each in plan.spec.exceptions}
    found = tuple(proof(plan) for proof in PROOFS)
    return (*(_excepted(each, reasons) for each in found), _exceptions(plan, found))


def _excepted(proof: Proof, reasons: dict[str, str]) -> Proof:
    if proof.holds or proof.id not in reasons:
        return proof
    return proof.model_copy(update={"exception": reasons[proof.id]})


def _exceptions(plan: ClusterPlan, proofs: tuple[Proof, ...]) -> Proof:
    """Whether each exception names a proof that fails: an exception kept for nothing hides the next fault."""
    failed = {proof.id for proof in proofs if not proof.holds}
    known = {proof.id for proof in proofs}
    idle = [(i, each.proof) for i, each in enumerate(plan.spec.exceptions) if each.proof not in failed]
    index, name = idle[0] if idle else (0, "")
    why = f"{name} holds: there is nothing to except" if name in known else f"there is no proof {name}"
    return Proof(
        id="spec.exceptions",
        title="Every exception is needed",
        holds=not idle,
        numbers={"exceptions": len(plan.spec.exceptions), "idle": len(idle)},
        message=why if idle else f"{len(plan.spec.exceptions)} exceptions, each for a proof that fails",
        advice="remove the exception" if name in known else f"the proofs are {', '.join(sorted(known))}",
        fields=(f"exceptions[{index}].proof", "exceptions"),
    )


__all__ = ["PROOFS", "Proof", "prove"]
