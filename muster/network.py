"""What `muster plan-network` prints: a summary that fits a screen."""

from rich.text import Text

from muster.console import out, result, table
from policies.report.network import Cause, causes, memory_word, plane_word, purposes, used
from spec.workload.answer import Answer, Option
from spec.workload.compare import Comparison
from spec.workload.layout import Layout
from spec.workload.result import Plan
from spec.workload.words import degrees, three, words

MOST = 4
"""Bottlenecks that are printed; the page and the JSON have all."""


def show(told: Answer) -> None:
    """Prints an answer."""
    if told.comparison:
        _compared(told.comparison)
        if told.plans:
            result(f"{_errors(told.plans[0])}; the first is planned below")
        result("")
    if told.search:
        found = told.search
        looked = f"on {found.gpus:,} GPUs, {found.tried:,} tried, {found.fitting:,} fit"
        result(Text.assemble(("best layouts ", "bold"), looked, f" · {_errors(told.plans[0])}"))
        _options(found.best)
        result("")
    if told.plans:
        _plan(told, told.plans[0])
    mark = Text("ENOUGH", "bold green") if told.enough else Text("NOT ENOUGH", "bold red")
    result(Text.assemble(mark, "  " + ("memory and every network suffice" if told.enough else told.short[0])))
    for each in told.short[1:]:
        result(f"            {each}")


def _errors(plan: Plan) -> str:
    return f"step ± {plan.step.seconds.error * 100:.0f} %, memory ± {plan.memory.all.error * 100:.0f} %"


def _plan(told: Answer, plan: Plan) -> None:
    step = plan.step
    head = f" · {degrees(plan.layout)} · {plan.gpus:,} of {told.cluster_gpus:,} GPUs of {told.cluster}"
    result(Text.assemble((plan.model.name, "bold"), head))
    network = "measured: " if told.network.measured else "not measured: "
    result(f"network     {network}{told.network.source}")
    for why in told.network.passed_over[:2]:
        result(Text(f"            not used: {why}", "yellow"))
    result(
        f"step        {words(step.seconds)} · MFU {words(step.mfu)} · communication {words(step.communication_share)}"
        f" · {words(step.tokens_per_second, error=False)}"
    )
    result("            " + _shares(list(causes(plan))))
    fit, style = memory_word(plan)
    memory = f"{words(plan.memory.all)} a GPU of {plan.memory.available.value:.0f} GiB: "
    result(Text.assemble(f"memory      {memory}", (fit, {"go": "green", "warn": "yellow"}.get(style, "bold red"))))
    kept = plan.checkpoints
    result(
        f"checkpoint  {words(kept.size)} every {words(kept.interval)}, written at {words(kept.write)}"
        f" · goodput {words(kept.goodput)}"
    )
    if plan.cost:
        price = plan.cost.price
        told_cost = f" · costs {words(price)}" if price else ""
        result(f"run         {words(plan.cost.days)} · {words(plan.cost.gpu_hours)}{told_cost}")
    result("")
    planes = table("plane", "for", "needed GB/s", "there GB/s", "used")
    for each in purposes(plan):
        style = "" if each.enough else "yellow" if plane_word(each)[1] == "warning" else "bold red"
        needed = f"{three(each.needed.value)} ± {each.needed.error * 100:.0f} %"
        planes.add_row(each.plane, each.purpose, needed, three(each.available.value), Text(used(each), style))
    for column in planes.columns[2:]:
        column.justify = "right"
    out.print(planes)
    result("")
    for number, found in enumerate(plan.bottlenecks[:MOST], 1):
        cost = f" {found.cost.value * 100:.0f} % of the step" if found.cost.value else ""
        result(Text.assemble((f"{number}. {found.what}", "bold"), f"{cost}: {found.evidence}"))
        result(f"   → {found.change}")
    if len(plan.bottlenecks) > MOST:
        result(f"   and {len(plan.bottlenecks) - MOST} more: --html, --json")
    if plan.bottlenecks:
        result("")


def _shares(parts: list[Cause]) -> str:
    """`computing 85 % · pipeline bubble 5 %`, what is next to nothing left out."""
    whole = sum(each.seconds for each in parts)
    told = [f"{each.name} {each.seconds / whole * 100:.0f} %" for each in parts if each.seconds / whole >= 0.005]
    return " · ".join(told)


def _options(best: tuple[Option, ...]) -> None:
    rows = table("layout", "micro batch", "recompute", "step", "MFU", "communication", "memory GiB")
    for each in best:
        rows.add_row(
            degrees(each.layout),
            str(each.micro_batch),
            each.recompute.value,
            words(each.step, error=False),
            words(each.mfu, error=False),
            words(each.communication_share, error=False),
            f"{each.memory.value:.0f}",
        )
    out.print(rows)


def _compared(comparison: Comparison) -> None:
    rows = table(
        "model", "layout", "GPUs", "step", "MFU", "communication", "memory GiB", "tokens/s a GPU", "GPU s a token"
    )
    for each in comparison.rows:
        if each.step is None or each.mfu is None or each.communication_share is None or each.memory is None:
            rows.add_row(each.model, _name(each.layout), str(each.gpus), Text("cannot run", "bold red"))
            continue
        rows.add_row(
            each.model,
            _name(each.layout),
            f"{each.gpus:,}",
            words(each.step, error=False),
            words(each.mfu, error=False),
            words(each.communication_share, error=False),
            Text(f"{each.memory.value:.0f}", "" if each.fits else "bold red"),
            f"{each.tokens_per_gpu.value:,.0f}" if each.tokens_per_gpu else "",
            _slower(each.slower or 1, each.distinct),
        )
    out.print(rows)
    for each in comparison.rows:
        if each.impossible:
            result(Text(f"{each.model}, {_name(each.layout)}: {each.impossible}", "bold red"))


def _name(layout: Layout) -> str:
    return degrees(layout) if layout.name == "layout" else layout.name


def _slower(by: float, distinct: bool) -> str:
    if by == 1:
        return "best"
    return f"+{(by - 1) * 100:.0f} %" + ("" if distinct else ", within the error")
