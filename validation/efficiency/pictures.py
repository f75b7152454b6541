"""Where GPU time went, as bars within a page; and how busy GPUs were beside much communication. All text is escaped."""

from collections.abc import Sequence
from math import ceil, sqrt

from markupsafe import Markup

from policies.report.svg import line, svg, text
from policies.report.visible import visible
from validation.efficiency.figures import JobFigures, Sum
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


NAMED = 8
"""Up to so many jobs have their names in a picture."""
TENTHS = 0.5
"""Up to this share the axis has a number at each tenth."""


def hours(value: float | None) -> str:
    """GPU-hours in words: `1,204`, `3.2`, `0.04`; a dash where they were not measured."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def legend(total: Sum) -> Markup:
    """The colours of the causes, and which of them was not measured."""
    spans = []
    for cause in Cause:
        name = NAMES[cause] + (" (not measured)" if total.causes[cause].gpu_hours is None else "")
        spans.append(Markup('<span title="{}"><i class="key {}"></i>{}</span>').format(cause.words, cause.value, name))
    return Markup("").join(spans)


def bars(rows: Sequence[tuple[str, Sum]]) -> Markup:
    """One bar a row, as long as its GPU-hours, cut by cause. Empty where nothing was held."""
    most = max((each.gpu_hours for _, each in rows), default=0.0)
    if most <= 0:
        return Markup("")
    parts = []
    for name, each in rows:
        label = visible(name, 24)
        cut = []
        for cause in Cause:
            spent = each.causes[cause].gpu_hours or 0.0
            if spent > 0:
                said = f"{label}: {NAMES[cause]}, {hours(spent)} GPU-hours ({spent / each.gpu_hours:.1%})"
                cut.append(
                    Markup('<i class="key {}" style="flex:{:.6f}" title="{}"></i>').format(
                        cause.value, spent / each.gpu_hours, said
                    )
                )
        parts.append(
            Markup('<b>{}</b><div><span style="width:{:.3f}%">{}</span><em>{} h</em></div>').format(
                label, 100 * each.gpu_hours / most, Markup("").join(cut), hours(each.gpu_hours)
            )
        )
    return Markup('<div class="bars" role="img" aria-label="GPU-hours by what they went into">{}</div>').format(
        Markup("").join(parts)
    )


def busy_and_talking(jobs: Sequence[JobFigures]) -> Markup:
    """Each job as a circle as large as its GPU-hours: right is much communication, up is a busy GPU.

    Empty where no job has both figures.
    """
    both = [(each, each.communication, each.gpu_busy) for each in jobs]
    known = [(each, talk, busy) for each, talk, busy in both if talk is not None and busy is not None]
    if not known:
        return Markup("")
    width, height, left, right, top, bottom = 600, 320, 58, 80, 36, 48
    most = min(1.0, max(0.2, 0.1 * ceil(10 * max(talk for _, talk, _ in known))))
    largest = max(each.gpu_hours for each, *_ in known)

    def x(talk: float) -> float:
        return left + (width - left - right) * talk / most

    def y(busy: float) -> float:
        return height - bottom - (height - top - bottom) * busy

    parts = [text(left, 14, "GPU busy", "middle", "axis")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(left, y(share), width - right, y(share), "rule"))
        parts.append(text(left - 10, y(share) + 4, f"{share:.0%}", "end", "axis"))
    for tick in range(0, round(10 * most) + 1, 1 if most <= TENTHS else 2):
        parts.append(text(x(tick / 10), height - bottom + 20, f"{tick / 10:.0%}", "middle", "axis"))
    parts.append(text(width - right, height - 6, "communication, share of step time", "end", "axis"))
    for each, talk, busy in sorted(known, key=lambda found: -found[0].gpu_hours):
        radius = 4 + 14 * sqrt(each.gpu_hours / largest)
        said = f"job {each.id} of {each.user}: GPU busy {busy:.1%}, communication {talk:.1%}"
        parts.append(
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" class="job"><title>{}</title></circle>').format(
                x(talk), y(busy), radius, visible(f"{said}, {hours(each.gpu_hours)} h")
            )
        )
        if len(known) <= NAMED:
            parts.append(text(x(talk) + radius + 5, y(busy) + 4, each.id, "start", "name"))
    return svg(width, height, parts, "GPU use over communication, by job", "use")
