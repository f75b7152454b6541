"""What network a job needs, as one HTML page that needs nothing beside it: no network, no other file, no script."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from policies.report.template import environment, style
from spec.workload.answer import NETWORKS, Answer
from spec.workload.figure import Figure
from spec.workload.result import Bandwidth, Plan
from spec.workload.words import amount, degrees, three, words


class Cause(NamedTuple):
    """A part of the step time."""

    name: str
    seconds: float
    kind: str
    """Its class in the page's style."""
    why: str


def causes(plan: Plan) -> Iterator[Cause]:
    """What the step's time goes to: together they are the step."""
    step = plan.step
    yield Cause("computing", step.computing.value, "computing", "matrices and what lies between them")
    if step.bubble.value:
        yield Cause("pipeline bubble", step.bubble.value, "bubble", "waiting for the pipeline to fill and drain")
    yield Cause("optimizer update", step.update.value, "update", "weights, gradients and moments through memory")
    for kind in dict.fromkeys(each.kind for each in plan.traffic):
        flows = [each for each in plan.traffic if each.kind == kind]
        waits = sum(each.exposed.value for each in flows)
        whole = sum(each.seconds.value for each in flows)
        tiers = ", ".join(dict.fromkeys(each.tier for each in flows))
        said = f"what computing does not hide of {amount(whole, 's')} over the {tiers}"
        yield Cause(f"{kind} communication", waits, _classes(kind), said)


def _classes(kind: str) -> str:
    return "wait-" + kind.partition(" ")[0].partition("-")[0]


def purposes(plan: Plan) -> list[Bandwidth]:
    """Every plane's needs, those of which something is asked."""
    return [each for each in plan.bandwidth if each.needed.value > 0]


def memory_word(plan: Plan) -> tuple[str, str]:
    """Whether it fits, in words, and as what it counts: go, warn or stop."""
    memory = plan.memory
    if not memory.fits:
        return "does not fit", "stop"
    if memory.all.value * (1 + memory.all.error) > memory.available.value:
        return "fits, but not if the estimate is low by its error", "warn"
    return "fits", "go"


def used(each: Bandwidth) -> str:
    """How much of a plane is used, in hundredths."""
    part = 100 * each.utilisation
    return f"{part:,.0f} %" if part >= 1 else "below 1 %"


def plane_word(each: Bandwidth) -> tuple[str, str]:
    """Whether a plane suffices, in words, and as what it counts."""
    if not each.enough:
        return ("too little", "no") if each.plane in NETWORKS else ("slows the step", "warning")
    if each.needed.value * (1 + each.needed.error) > each.available.value:
        return "enough, but not surely", "warning"
    return "enough", "yes"


class Row(NamedTuple):
    """One figure with its formula."""

    name: str
    figure: Figure


def figures(plan: Plan) -> Iterator[tuple[str, Sequence[Row]]]:
    """Every figure of a plan, by part, with the names that the JSON gives them."""
    for title, part in (("step", plan.step), ("memory", plan.memory), ("checkpoints", plan.checkpoints)):
        yield title, [Row(name.replace("_", " "), each) for name, each in part if isinstance(each, Figure)]
    if plan.cost:
        yield "cost", [Row(name.replace("_", " "), each) for name, each in plan.cost if isinstance(each, Figure)]


def network_page(told: Answer) -> str:
    """The page's HTML. Pure: the same answer gives the same page."""
    made = environment(Path(__file__).parent)
    made.filters.update(words=words, amount=amount, degrees=degrees, three=three)
    longest = max((each.step.seconds.value for each in told.plans), default=1.0)
    return made.get_template("network.html.j2").render(
        told=told,
        plan=told.plans[0] if told.plans else None,
        longest=longest,
        style=style(),
        causes=lambda plan: list(causes(plan)),
        purposes=purposes,
        memory_word=memory_word,
        plane_word=plane_word,
        used=used,
        figures=figures,
        parts_of_memory=("weights", "gradients", "optimizer", "activations", "logits", "overhead"),
    )
