"""Everything that is asked of a design before anything is built: the spec's own proofs, and what policies add."""

from policies import compatibility
from policies.catalogue import load_catalogue
from policies.pins import load_pins
from policies.waivers import waivers_of
from spec.plan import ClusterPlan
from spec.proofs import Proof, prove


def proofs(plan: ClusterPlan) -> tuple[Proof, ...]:
    """Every proof of a design. Raises PolicyError as `of_policies` does."""
    return (*prove(plan), *of_policies(plan))


def of_policies(plan: ClusterPlan) -> tuple[Proof, ...]:
    """That the versions which a spec pins work together.

    Raises PolicyError where its pins or its waivers cannot be used at all.
    """
    pins = load_pins(plan.spec.pins)
    waivers_of(plan, load_catalogue())
    return compatibility.proofs(pins)
