"""Everything that is wrong with a spec, in one list: what cannot be read, and what cannot work."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spec.load import SpecError, SpecErrors, examine, in_order
from spec.mend import mend
from spec.plan import ClusterPlan, derive
from spec.proofs import Proof, prove


@dataclass(frozen=True)
class Checked:
    """A spec that can be read, and how its proofs came out. `errors` are those that refuse it, with their lines."""

    plan: ClusterPlan
    proofs: tuple[Proof, ...]
    errors: tuple[SpecError, ...]


def check(path: Path) -> Checked:
    """The plan and the proofs of a spec.

    Raises SpecErrors where the file is not a spec: with what is wrong in it and, for the part that is not affected,
    with the proofs that fail. So a person sees all errors at once, of whatever kind.
    """
    loaded = examine(path)
    if loaded.cluster is not None:
        plan = derive(loaded.cluster)
        proofs = prove(plan)
        return Checked(
            plan, proofs, in_order(_refusal(path, loaded.line, proof) for proof in proofs if not proof.accepted)
        )
    found = list(loaded.errors)
    mended = mend(loaded.document.data) if loaded.document.data is not None else None
    if mended is not None:
        for each in mended.contradictions:
            found.append(SpecError(path, loaded.line(each.field), each.field, each.what, each.advice))
        for proof in prove(derive(mended.cluster)):
            if not proof.accepted and not any(mended.unsure(field) for field in proof.fields):
                found.append(_refusal(path, loaded.line, proof))
    raise SpecErrors(in_order(found))


def _refusal(path: Path, line: Callable[[str], int], proof: Proof) -> SpecError:
    return SpecError(path, line(proof.fields[0]), proof.fields[0], proof.message, proof.advice)
