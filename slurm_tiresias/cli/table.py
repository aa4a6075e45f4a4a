"""Tables and bars in plain lines: exact widths, no markup, quick for ten thousand rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.cli.text import cells, pad, shorten

STUMP = 4
"""Cells that are left of a column even where its least finds no room."""

Row = TypeVar("Row")
GAP = " "
WIDE_GAP = "  "
"""Between columns where there is room for it, which is easier on the eye."""


def plain(_row: object) -> str:
    """The look of a cell that needs none."""
    return ""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column. ``least`` cells remain of it where room is short (None: it is never cut);
    meanwhile it may stay ``worth`` cells wider than the others. ``goes`` is its place among those
    left out where even the least does not fit (None: never left out).
    """

    title: str
    value: Callable[[Row], str]
    doc: str = ""
    right: bool = False
    least: int | None = None
    worth: int = 0
    goes: int | None = None
    look: Callable[[Row], str] = plain


def that_fit(
    columns: Sequence[Column[Row]], rows: Sequence[Row], screen: Screen
) -> tuple[Column[Row], ...]:
    """The columns that the screen has room for; the dispensable ones go first."""
    if screen.width is None:
        return tuple(columns)
    needs = {id(c): _least_width(c, _natural_width(c, rows)) for c in columns}
    kept = list(columns)
    for column in sorted((c for c in columns if c.goes is not None), key=lambda c: c.goes or 0):
        if sum(needs[id(c)] for c in kept) + len(GAP) * (len(kept) - 1) <= screen.width:
            break
        kept.remove(column)
    return tuple(kept)


def lines(
    columns: Sequence[Column[Row]], rows: Sequence[Row], screen: Screen, header: bool = True
) -> Iterator[str]:
    """The table, line by line."""
    texts = [[column.value(row) for row in rows] for column in columns]
    natural = [
        max(len(column.title) if header else 0, max(map(cells, column_texts), default=0))
        for column, column_texts in zip(columns, texts, strict=True)
    ]
    gap = WIDE_GAP if _has_room(natural, screen.width) else GAP
    widths = _shrunk(columns, natural, screen.width)
    if header:
        titles = [
            pad(shorten(column.title, width), width, column.right)
            for column, width in zip(columns, widths, strict=True)
        ]
        yield screen.style(gap.join(titles).rstrip(), "title")
    for row, row_texts in zip(rows, zip(*texts, strict=True), strict=True):
        yield gap.join(_cells_of(columns, row, row_texts, widths, screen)).rstrip()


def _cells_of(
    columns: Sequence[Column[Row]],
    row: Row,
    texts: Sequence[str],
    widths: Sequence[int],
    screen: Screen,
) -> Iterator[str]:
    for column, text, width in zip(columns, texts, widths, strict=True):
        cell = pad(shorten(text, width), width, column.right)
        if column is columns[-1]:
            cell = cell.rstrip()
        yield screen.style(cell, column.look(row)) if screen.colour else cell


def _has_room(widths: Sequence[int], room: int | None) -> bool:
    return room is None or sum(widths) + len(WIDE_GAP) * (len(widths) - 1) <= room


def _natural_width(column: Column[Row], rows: Sequence[Row]) -> int:
    return max(len(column.title), max((cells(column.value(row)) for row in rows), default=0))


def _least_width(column: Column[Row], natural: int) -> int:
    return natural if column.least is None else min(natural, column.least)


def _shrunk(columns: Sequence[Column[Row]], natural: Sequence[int], room: int | None) -> list[int]:
    """Widths that fit the room, as far as the columns give way; the widest gives way first."""
    widths = list(natural)
    if room is None:
        return widths
    least = [_least_width(c, width) for c, width in zip(columns, natural, strict=True)]
    _shrink(columns, widths, least, room)
    # On a screen of hardly any width a stump says more than a line that is broken.
    gives_way = zip(columns, widths, strict=True)
    _shrink(columns, widths, [w if c.least is None else min(w, STUMP) for c, w in gives_way], room)
    return widths


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
