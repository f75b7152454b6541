"""A page of SVG: boxes, words and lines. Every word is escaped; no font, script or picture is loaded from elsewhere."""

from dataclasses import dataclass, field
from html import escape

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_WIDTH_OF_A_LETTER = 0.62
"""Of the font's size: a wide guess, so that what is fitted fits in any sans-serif font."""


@dataclass
class Canvas:
    """Things drawn later lie above things drawn earlier. Lengths in pixels, from the upper left."""

    width: float
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, fill: str, stroke: str = "none", radius: float = 6) -> None:
        """A rectangle with round corners."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        room: float,
        size: float = 12,
        anchor: str = "middle",
        fill: str = "#1f2933",
        bold: bool = False,
    ) -> None:
        """One line of text, cut with an ellipsis where there is no room for it; then all of it is in its tooltip."""
        shown = fitted(text, room, size)
        if not shown:
            return
        tip = f"<title>{clean(text)}</title>" if shown != text else ""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{clean(shown)}{tip}</text>"
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1.5, opacity: float = 1
    ) -> None:
        """A straight line."""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
            f'stroke-width="{width:g}" stroke-opacity="{opacity:g}"/>'
        )

    def dot(self, x: float, y: float, fill: str, radius: float = 3.5) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>')

    def svg(self, height: float, name: str, title: str, description: str) -> str:
        """The document. `name` makes its ids its own, so that several can stand in one page."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {height:g}" role="img" '
            f'aria-labelledby="title-{clean(name)} about-{clean(name)}" font-family="{_FONT}">\n'
            f'<title id="title-{clean(name)}">{clean(title)}</title>\n'
            f'<desc id="about-{clean(name)}">{clean(description)}</desc>\n'
            f'<rect width="{self.width:g}" height="{height:g}" fill="#ffffff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def fitted(text: str, room: float, size: float) -> str:
    """As much of a text as there is room for; nothing where not even three letters fit."""
    letters = int(room / (size * _WIDTH_OF_A_LETTER))
    if len(text) <= letters:
        return text
    return text[: letters - 1].rstrip(" ,·") + "…" if letters >= 4 else ""


def clean(text: str) -> str:
    """A text as XML can hold it."""
    return escape("".join(letter for letter in text if letter.isprintable()))
