"""The columns of a table, which a terminal and a page draw in their own ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table.

    ``least`` is the width in cells down to which it may be cut (None: never cut); while columns
    shrink it may stay ``worth`` cells wider than the others. Columns with the lowest ``goes`` are
    dropped first if the least widths do not fit (None: never dropped). An ``optional`` column is
    dropped if no row has a value.
    """

    title: str
    value: Callable[[Row], str]
    doc: str = ""
    right: bool = False
    least: int | None = None
    worth: int = 0
    goes: int | None = None
    optional: bool = False
    look: Callable[[Row], str] = lambda _row: ""
