"""What commands print on: standard output, with its width and colours; paragraphs, lists, tables.

Tables have exact widths and no markup, and are quick for ten thousand rows. How single values are
written is in ``text.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

from slurm_tiresias.cli.text import as_ascii, cells, pad, shorten

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
"""Cells that are left of a column even where its least finds no room."""
GAP = " "
WIDE_GAP = "  "
"""Between columns where there is room for it, which is easier on the eye."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table. ``least`` cells remain of it where room is short (None: it is never
    cut); meanwhile it may stay ``worth`` cells wider than the others. ``goes`` is its place among
    those left out where even the least does not fit (None: never left out).
    """

    title: str
    value: Callable[[Row], str]
    doc: str = ""
    right: bool = False
    least: int | None = None
    worth: int = 0
    goes: int | None = None
    look: Callable[[Row], str] = lambda _row: ""


@dataclass(frozen=True, slots=True)
class Screen:
    """``width`` is in cells; None where nothing may be cut or wrapped: a pipe or a file."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True

    def style(self, text: str, look: str) -> str:
        """The text in one of ``LOOKS``, where there is colour; otherwise as it is."""
        return click.style(text, **LOOKS[look]) if self.colour and look else text

    def show(self, lines: Iterable[str]) -> None:
        text = "".join(self.encodable(line) + "\n" for line in lines)
        click.echo(text, nl=False, color=self.colour)

    def encodable(self, line: str) -> str:
        return line if self.unicode else as_ascii(line)

    def prose(self, sentences: str, indent: str = "  ", look: str = "") -> list[str]:
        """A paragraph, wrapped to the screen; in a pipe it stays one line, good to search in."""
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
        """A paragraph as an item of a list."""
        first, *rest = self.prose(sentences, indent="    ")
        return ["  - " + first.lstrip(), *rest]

    def flow(self, pieces: Sequence[str], gap: str = "  ") -> list[str]:
        """The pieces side by side, as many a line as fit; none is broken that fits on a line."""
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
        """Whether a line, which may be styled, is not wider than the screen."""
        return self.width is None or cells(click.unstyle(line)) <= self.width

    def table(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row], header: bool = True
    ) -> Iterator[str]:
        """A table of the columns that there is room for."""
        return self.whole_table(self.columns_that_fit(columns, rows), rows, header)

    def columns_that_fit(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row]
    ) -> tuple[Column[Row], ...]:
        """The columns that there is room for; the dispensable ones go first."""
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

    def whole_table(
        self, columns: Sequence[Column[Row]], rows: Sequence[Row], header: bool = True
    ) -> Iterator[str]:
        """A table of all these columns; where room is short, their cells are cut."""
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
    """The screen that standard output is."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # Python speaks UTF-8 in the C locale too; the terminal there may not.
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
    """Print the data as JSON for programs, or the lines for people."""
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
    """Widths that fit the room, as far as the columns give way, and the gap between columns."""
    widths = list(natural)
    if room is None or sum(natural) + len(WIDE_GAP) * (len(natural) - 1) <= room:
        return widths, WIDE_GAP
    least = [_least(column, width) for column, width in zip(columns, natural, strict=True)]
    _shrink(columns, widths, least, room)
    # On a screen of hardly any width a stump says more than a line that is broken.
    stumps = [
        width if column.least is None else min(width, STUMP)
        for column, width in zip(columns, widths, strict=True)
    ]
    _shrink(columns, widths, stumps, room)
    return widths, GAP


def _shrink(
    columns: Sequence[Column[Row]], widths: list[int], least: Sequence[int], room: int
) -> None:
    """Take away from the widest in turn, until they fit or all are at their least."""
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
    """Cells for each part of a bar: ``width`` in all, and no part that is there vanishes."""
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
