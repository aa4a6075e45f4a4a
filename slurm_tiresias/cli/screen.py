"""Output of commands: standard output with its width and colours; paragraphs, lists and tables.

Tables have exact widths and no markup, and are fast for ten thousand rows. ``text.py`` formats
single values.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from slurm_tiresias.explanation.section import Section
from slurm_tiresias.table import Column, Row
from slurm_tiresias.text import NOTHING, as_ascii, cells, pad, shorten

NARROWEST = 20
WIDEST_PROSE = 100
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "good": {"fg": "green"},
    "note": {"fg": "yellow"},
    "bad": {"fg": "red", "bold": True},
    "other": {"fg": "blue"},
    "quiet": {"dim": True},
    "title": {"bold": True},
}

STUMP = 4
"""Cells that every shrinking column keeps, even if the table is then too wide."""
GAP = " "
WIDE_GAP = "  "
"""Gap between columns if there is room for it; easier to read."""


@dataclass(frozen=True, slots=True)
class Screen:
    """``width`` in cells; None if nothing may be cut or wrapped, as in a pipe or a file."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True

    def style(self, text: str, look: str) -> str:
        """Return the text in one of ``LOOKS`` if there is colour, else unchanged."""
        return click.style(text, **LOOKS[look]) if self.colour and look else text

    def show(self, lines: Iterable[str]) -> None:
        text = "".join(self.encodable(line) + "\n" for line in lines)
        click.echo(text, nl=False, color=self.colour)

    def encodable(self, line: str) -> str:
        return line if self.unicode else as_ascii(line)

    def prose(self, sentences: str, indent: str = "  ", look: str = "") -> list[str]:
        """Return a paragraph wrapped to the screen; in a pipe it is one line, easier to search."""
        if self.width is None:
            return [self.style(indent + sentences, look)]
        lines = textwrap.wrap(
            sentences,
            min(self.width, WIDEST_PROSE),
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        return [self.style(line, look) for line in lines]

    def item(self, sentences: str) -> list[str]:
        """Return a paragraph as a list item."""
        first, *rest = self.prose(sentences, indent="    ")
        return ["  - " + first.lstrip(), *rest]

    def section(self, section: Section) -> Iterator[str]:
        """Yield a heading, and its sentences and list below it."""
        yield self.style(section.title, "title")
        for sentence in section.sentences:
            yield from self.prose(sentence)
        for item in section.items:
            yield from self.item(item)

    def flow(self, pieces: Sequence[str], gap: str = "  ") -> list[str]:
        """Put the pieces side by side, as many per line as fit; none that fits is broken."""
        lines: list[str] = []
        for piece in pieces:
            whole = self.width is None or self.fits(piece)
            for part in [piece] if whole else textwrap.wrap(click.unstyle(piece), self.width or 0):
                if lines and self.fits(lines[-1] + gap + part):
                    lines[-1] += gap + part
                else:
                    lines.append(part)
        return lines

    def fits(self, line: str) -> bool:
        """Whether a line, styled or not, fits the screen's width."""
        return self.width is None or cells(click.unstyle(line)) <= self.width

    def table(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row], header: bool = True
    ) -> Iterator[str]:
        """Yield a table of those columns that fit."""
        return self.whole_table(self.columns_that_fit(columns, rows), rows, header)

    def columns_that_fit(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row]
    ) -> tuple[Column[Row], ...]:
        """Return the columns that fit; those with the lowest ``goes`` are dropped first."""
        if self.width is None:
            return tuple(columns)
        needs: dict[int, int] = {}
        for column in columns:
            widest = max((cells(column.value(row)) for row in rows), default=0)
            needs[id(column)] = _least(column, max(len(column.title), widest))
        kept = list(columns)
        dispensable = [column for column in columns if column.goes is not None]
        for column in sorted(dispensable, key=lambda column: column.goes or 0):
            if sum(needs[id(c)] for c in kept) + len(GAP) * (len(kept) - 1) <= self.width:
                break
            kept.remove(column)
        return tuple(kept)

    def columns_with_content(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row]
    ) -> tuple[Column[Row], ...]:
        """Return the columns without optional ones that are empty. If nothing is cut, return all,
        so that a program that reads the table always finds the same columns."""
        if self.width is None:
            return tuple(columns)
        return tuple(
            column
            for column in columns
            if not column.optional or any(column.value(row) != NOTHING for row in rows)
        )

    def whole_table(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row], header: bool = True
    ) -> Iterator[str]:
        """Yield a table of all these columns; cells are cut if there is too little room."""
        texts = [[column.value(row) for row in rows] for column in columns]
        natural = [
            max(len(column.title) if header else 0, max(map(cells, column_texts), default=0))
            for column, column_texts in zip(columns, texts, strict=True)
        ]
        widths, gap = _widths(columns, natural, self.width)
        if header:
            titles = [
                pad(shorten(column.title, width), width, column.right)
                for column, width in zip(columns, widths, strict=True)
            ]
            yield self.style(gap.join(titles).rstrip(), "title")
        for row, row_texts in zip(rows, zip(*texts, strict=True), strict=True):
            line = []
            for column, text, width in zip(columns, row_texts, widths, strict=True):
                cell = pad(shorten(text, width), width, column.right)
                if column is columns[-1]:
                    cell = cell.rstrip()
                line.append(self.style(cell, column.look(row)) if self.colour else cell)
            yield gap.join(line).rstrip()


def stdout() -> Screen:
    """Return the screen for standard output."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # In the C locale too Python uses UTF-8, which the terminal may not understand.
    in_c_locale = bool(sys.flags.utf8_mode) and "PYTHONUTF8" not in os.environ
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return Screen(
        width=max(NARROWEST, shutil.get_terminal_size().columns) if terminal else None,
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=not in_c_locale and encoding.lower().replace("-", "") == "utf8",
    )


def show_or_json(
    as_json: bool, data: Callable[[], object], lines: Callable[[Screen], Iterable[str]]
) -> None:
    """Print the data as JSON, or the lines for people."""
    if as_json:
        click.echo(json.dumps(data()))
    else:
        screen = stdout()
        screen.show(lines(screen))


def _least(column: Column[Row], natural: int) -> int:
    return natural if column.least is None else min(natural, column.least)


def _widths(
    columns: Sequence[Column[Row]], natural: Sequence[int], room: int | None
) -> tuple[list[int], str]:
    """Return widths that fit as far as columns may be cut, and the gap between columns."""
    widths = list(natural)
    if room is None or sum(natural) + len(WIDE_GAP) * (len(natural) - 1) <= room:
        return widths, WIDE_GAP
    least = [_least(column, width) for column, width in zip(columns, natural, strict=True)]
    _shrink(columns, widths, least, room)
    # On a very narrow screen, short stumps are better than broken lines.
    stumps = [
        width if column.least is None else min(width, STUMP)
        for column, width in zip(columns, widths, strict=True)
    ]
    _shrink(columns, widths, stumps, room)
    return widths, GAP


def _shrink(
    columns: Sequence[Column[Row]], widths: list[int], least: Sequence[int], room: int
) -> None:
    """Shorten the widest column in turn until the table fits or all are at their least width."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - room
    while excess > 0:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        if not any(spare):
            return
        widest = max(
            (i for i, s in enumerate(spare) if s), key=lambda i: widths[i] - columns[i].worth
        )
        widths[widest] -= 1
        excess -= 1


def shares(parts: Sequence[int], width: int) -> list[int]:
    """Return the cells of each part of a bar, ``width`` in all and at least 1 for a part above
    0."""
    total = sum(parts)
    if total <= 0 or width <= 0:
        return [0] * len(parts)
    exact = [part * width / total for part in parts]
    result = [max(int(share), 1) if share else 0 for share in exact]
    while sum(result) < width:
        result[max(range(len(parts)), key=lambda i: exact[i] - result[i])] += 1
    while sum(result) > width and max(result) > 1:
        result[max(range(len(parts)), key=lambda i: (result[i] > 1, result[i] - exact[i]))] -= 1
    return result
