"""Parts of a picture within a page, whose style colours them by class. All text is escaped."""

from collections.abc import Sequence

from markupsafe import Markup

from policies.report.visible import visible


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of the class `kind`."""
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(x1, y1, x2, y2, kind)


def text(x: float, y: float, words: str, anchor: str, kind: str) -> Markup:
    """One line of text of the class `kind`; `anchor`: start, middle or end."""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, kind, visible(words)
    )


def svg(width: float, height: float, parts: Sequence[Markup], title: str, kind: str = "") -> Markup:
    """The picture, never wider than its width in pixels. `kind` is its class."""
    return Markup(
        '<svg viewBox="0 0 {0:.0f} {1:.0f}" style="max-width:{0:.0f}px"{4} role="img" aria-label="{2}">{3}</svg>'
    ).format(
        width,
        height,
        visible(title),
        Markup("").join(parts),
        Markup(' class="{}"').format(kind) if kind else "",
    )
