"""Where GPU time went, as bars within a page. All text is escaped."""

from collections.abc import Sequence

from markupsafe import Markup

from policies.report.svg import svg, text
from policies.report.visible import visible
from validation.efficiency.figures import Sum
from validation.efficiency.history import Cause

NAMES = {
    Cause.USEFUL: "useful steps",
    Cause.START: "start-up",
    Cause.CHECKPOINT: "checkpoints",
    Cause.DATA: "data",
    Cause.FAILURE: "failures and repeated work",
    Cause.STRAGGLER: "stragglers",
    Cause.IDLE: "idle",
    Cause.UNKNOWN: "not explained",
}


def hours(value: float | None) -> str:
    """GPU-hours in words: `1,204`, `3.2`, `0.04`; a dash where they were not measured."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def bars(rows: Sequence[tuple[str, Sum]]) -> Markup:
    """One bar a row, as long as its GPU-hours, cut by cause. Empty where nothing was held."""
    most = max((each.gpu_hours for _, each in rows), default=0.0)
    if most <= 0:
        return Markup("")
    high, top, bar, long = 34, 6, 22, 700
    labels = [visible(label, 24) for label, _ in rows]
    left = 20 + 7.6 * max(map(len, labels))
    parts = []
    for row, (label, each) in enumerate(zip(labels, (each for _, each in rows), strict=True)):
        y = top + high * row
        parts.append(text(left - 12, y + bar / 2 + 4, label, "end", "name"))
        x = left
        for cause in Cause:
            spent = each.causes[cause].gpu_hours or 0.0
            width = long * spent / most
            if width > 0:
                said = f"{label}: {NAMES[cause]}, {hours(spent)} GPU-hours ({spent / each.gpu_hours:.1%})"
                parts.append(
                    Markup(
                        '<rect x="{:.2f}" y="{}" width="{:.2f}" height="{}" class="c-{}"><title>{}</title></rect>'
                    ).format(x, y, width, bar, cause.value, said)
                )
            x += width
        parts.append(text(x + 8, y + bar / 2 + 4, f"{hours(each.gpu_hours)} h", "start", "axis"))
    return svg(left + long + 90, top + high * len(rows), parts, "GPU-hours by what they went into")
