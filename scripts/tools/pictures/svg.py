"""Pictures as SVG: the colours for dark pages, and a small drawing surface."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Point = tuple[float, float]

INK, FAINT = "#1f2328", "#57606a"
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
_COLOURS = f"""
text {INK} #e6edf3 {FAINT} #9ea7b3
boxes #f6f8fa #1c2128 #ddf4ff #12304f #dafbe1 #12391f #fff1e5 #44260f
lines #8c959f #768390 #0969da #58a6ff #1a7f37 #3fb950 #bc4c00 #f0883e #8250df #bc8cff
tiers #b6e3ff #174a75 #c9e6c8 #1f5130 #f3e3a0 #59480f #fbd0a8 #6b3d17 #f7c1c4 #6b2a31
      #e0c6ef #4d2f66
"""
DARK: Mapping[str, str] = dict(re.findall(r"(#\w+) (#\w+)", _COLOURS))
"""The colours of pictures on light pages, and what each becomes on dark ones."""


def dark(picture: str) -> str:
    """Return a picture for light pages as it is on dark ones."""
    return re.sub("#[0-9a-f]{6}", lambda found: DARK[found[0]], picture)


@dataclass
class Drawing:
    """An SVG that is being drawn; coordinates are pixels from the top left."""

    width: int
    height: int
    title: str
    _parts: list[str] = field(default_factory=list)

    def rule(self, start: Point, end: Point, *, faint: bool = False) -> None:
        (x1, y1), (x2, y2) = start, end
        opacity = ' opacity="0.45"' if faint else ""
        ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        self._parts.append(f'<line {ends} stroke="{FAINT}"{opacity}/>')

    def bar(self, at: Point, size: Point, colour: str) -> None:
        (x, y), (width, height) = at, size
        box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {box} fill="{colour}"/>')

    def curve(self, points: Sequence[Point], colour: str) -> None:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        look = f'fill="none" stroke="{colour}" stroke-width="2"'
        self._parts.append(f'<polyline points="{corners}" {look}/>')

    def text(
        self,
        at: Point,
        text: str,
        *,
        anchor: str = "start",
        size: float = 12.5,
        bold: bool = False,
        colour: str = INK,
    ) -> None:
        """Write one line whose baseline goes through a point."""
        weight = ' font-weight="600"' if bold else ""
        look = f'text-anchor="{anchor}" fill="{colour}" font-size="{size:g}"{weight}'
        self._parts.append(f'<text x="{at[0]:g}" y="{at[1]:g}" {look}>{escape(text)}</text>')

    def svg(self) -> str:
        """Return the file's text."""
        size = f'width="{self.width}" height="{self.height}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}" role="img">'
        )
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join((head, title, *self._parts, "</svg>")) + "\n"
