"""State tables as text: a row for each event, a column for each state."""

from __future__ import annotations


def cells(table: str) -> list[tuple[str, str, str]]:
    """Event, state and what is written where they meet."""
    header, *rows = (
        [cell.strip() for cell in line.split("|")] for line in table.strip("\n").splitlines()
    )
    return [
        (row[0], state, cell)
        for row in rows
        for state, cell in zip(header[1:], row[1:], strict=True)
    ]
