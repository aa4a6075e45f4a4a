"""A small drawing surface for diagrams: boxes, arrows and text in one of two palettes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Point = tuple[float, float]

FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
CODE = "Menlo, Consolas, 'Liberation Mono', monospace"
LINE_PX = 17


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours for one theme. ``page`` is the background that text may have to be cut out of."""

    page: str
    ink: str
    faint: str
    line: str
    fills: Mapping[str, tuple[str, str]]
    """Fill and outline of each kind of box."""
    scale: Sequence[str]
    """Fills of the tiers, from the highest."""


PALETTES: Mapping[str, Palette] = {
    "light": Palette(
        page="#ffffff",
        ink="#1f2328",
        faint="#57606a",
        line="#57606a",
        fills={
            "plain": ("#f6f8fa", "#8c959f"),
            "main": ("#ddf4ff", "#0969da"),
            "good": ("#dafbe1", "#1a7f37"),
            "bad": ("#fff1e5", "#bc4c00"),
        },
        scale=("#b6e3ff", "#c9e6c8", "#f3e3a0", "#fbd0a8", "#f7c1c4", "#e0c6ef"),
    ),
    "dark": Palette(
        page="#0d1117",
        ink="#e6edf3",
        faint="#9ea7b3",
        line="#9ea7b3",
        fills={
            "plain": ("#1c2128", "#768390"),
            "main": ("#12304f", "#58a6ff"),
            "good": ("#12391f", "#3fb950"),
            "bad": ("#44260f", "#f0883e"),
        },
        scale=("#174a75", "#1f5130", "#59480f", "#6b3d17", "#6b2a31", "#4d2f66"),
    ),
}


@dataclass
class Drawing:
    """An SVG that is being drawn; coordinates are pixels from the top left."""

    width: int
    height: int
    title: str
    palette: Palette
    _parts: list[str] = field(default_factory=list)

    def box(
        self,
        at: Point,
        size: Point,
        title: str,
        lines: Sequence[str] = (),
        *,
        kind: str = "plain",
        code: bool = False,
    ) -> None:
        """Draw a rounded box with a bold title and smaller lines, centred in it."""
        (x, y), (width, height) = at, size
        fill, outline = self.palette.fills[kind]
        self._add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="{fill}" stroke="{outline}" stroke-width="1.5"/>'
        )
        first = y + height / 2 + 5 - LINE_PX * len(lines) / 2
        self.text((x + width / 2, first), title, bold=True, code=code)
        for number, line in enumerate(lines, start=1):
            self.text((x + width / 2, first + LINE_PX * number), line, size=12.5, faint=True)

    def frame(self, at: Point, size: Point, title: str) -> None:
        """Draw a dashed frame with its title in the top left corner."""
        (x, y), (width, height) = at, size
        self._add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="none" '
            f'stroke="{self.palette.line}" stroke-dasharray="5 4"/>'
        )
        self.text((x + 12, y + 19), title, anchor="start", size=12.5, faint=True)

    def dot(self, at: Point, *, final: bool = False) -> None:
        """Draw the mark where a life begins, or ends if it is final."""
        x, y = at
        if final:
            self._add(
                f'<circle cx="{x:g}" cy="{y:g}" r="10" fill="none" stroke="{self.palette.ink}" '
                'stroke-width="1.5"/>'
            )
        self._add(f'<circle cx="{x:g}" cy="{y:g}" r="6" fill="{self.palette.ink}"/>')

    def arrow(self, *points: Point, dashed: bool = False) -> None:
        """Draw a line through the points, with a head at the last one."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self._line(path, dashed=dashed)

    def loop(self, at: Point, width: float, depth: float) -> None:
        """Draw an arrow that leaves the lower edge of a box at a point and returns beside it; the
        upper edge if ``depth`` is negative."""
        (x, y), end = at, at[1] + math.copysign(2, depth)
        path = (
            f"M{x:g} {y:g} C{x:g} {y + depth:g} {x + width:g} {y + depth:g} {x + width:g} {end:g}"
        )
        self._line(path)

    def rule(self, start: Point, end: Point, *, dashed: bool = False, faint: bool = False) -> None:
        """Draw a line without a head."""
        (x1, y1), (x2, y2) = start, end
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        opacity = ' opacity="0.45"' if faint else ""
        self._add(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{self.palette.line}"'
            f"{dashes}{opacity}/>"
        )

    def area(self, points: Sequence[Point], fill: str) -> None:
        corners = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._add(f'<polygon points="{corners}" fill="{fill}"/>')

    def curve(self, points: Sequence[Point], colour: str) -> None:
        """Draw a line through many points."""
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')

    def text(
        self,
        at: Point,
        text: str,
        *,
        anchor: str = "middle",
        size: float = 14,
        bold: bool = False,
        faint: bool = False,
        code: bool = False,
        turned: float = 0,
        colour: str = "",
    ) -> None:
        """Write one line whose baseline goes through a point."""
        x, y = at
        colour = colour or (self.palette.faint if faint else self.palette.ink)
        look = f'fill="{colour}" font-size="{size:g}"'
        look += ' font-weight="600"' if bold else ""
        look += f' font-family="{CODE}"' if code else ""
        look += f' transform="rotate({turned:g} {x:g} {y:g})"' if turned else ""
        self._add(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {look}>{escape(text)}</text>')

    def label(self, at: Point, *lines: str, anchor: str = "middle") -> None:
        """Write what an arrow stands for, the first line in bold."""
        x, y = at
        for number, line in enumerate(lines):
            place = (x, y + number * (LINE_PX - 1))
            self.text(place, line, anchor=anchor, size=12.5, bold=not number, faint=bool(number))

    def svg(self) -> str:
        """Return the file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{escape(FONT)}" role="img">'
        )
        arrow_head = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{self.palette.line}"/></marker></defs>'
        )
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join((head, title, arrow_head, *self._parts, "</svg>")) + "\n"

    def _line(self, path: str, *, dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._add(
            f'<path d="{path}" fill="none" stroke="{self.palette.line}" stroke-width="1.5"{dashes} '
            'marker-end="url(#head)"/>'
        )

    def _add(self, part: str) -> None:
        self._parts.append(part)
