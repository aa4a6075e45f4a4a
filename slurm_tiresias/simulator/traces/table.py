"""Traces that are one CSV table with one job per line: column layouts, and a loader for them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias.simulator.traces import reading
from slurm_tiresias.simulator.traces.reading import BadValueError, Harvest, TraceFile
from slurm_tiresias.simulator.workload import TraceJob, Workload

Row = list[str]


def rows(file: TraceFile) -> Iterator[tuple[int, Row]]:
    """Yield the line numbers and rows of a CSV file, with the header but without blank lines."""
    reader = csv.reader(io.StringIO(file.text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise file.refuse(reader.line_num, f"this is not CSV ({error})") from None


def rows_below(
    file: TraceFile, header: Sequence[str], lines: Iterable[tuple[int, Row]]
) -> Iterator[tuple[int, Row]]:
    """Yield the rows after checking that each is as wide as the header."""
    for line, row in lines:
        if len(row) != len(header):
            raise file.refuse(line, f"has {len(row)} columns, and the header {len(header)}")
        yield line, row


def header_of(file: TraceFile, lines: Iterator[tuple[int, Row]]) -> Row:
    """Return the first row, which names the columns."""
    line, row = next(lines, (1, []))
    names = [name.strip() for name in row]
    twice = {name for name in names if names.count(name) > 1 and name}
    if twice:
        raise file.refuse(line, f"the column {reading.quoted(min(twice))} occurs twice")
    return names


def position(file: TraceFile, header: Sequence[str], name: str) -> int:
    """Return the position of a column; ``TraceError`` if it is missing."""
    if name not in header:
        raise file.refuse(
            1,
            f"the header has no column {name!r}",
            "name a trace of this format, or another format",
        )
    return header.index(name)


NEEDED = ("job_id", "submitted_s", "gpus", "duration_s")


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a format, by the field of ``TraceJob`` that they fill.

    Of several names for a column, the first one in the header counts. Without ``job_id``, jobs are
    named after their lines. ``clock`` parses the submission time. Jobs without GPUs are dropped if
    ``expects_cpu_jobs``; otherwise such a line is refused.
    """

    format: str
    columns: Mapping[str, tuple[str, ...]]
    clock: Callable[[str], float] = lambda text: reading.number(text, "the time of submission")
    expects_cpu_jobs: bool = False
    passed_over: frozenset[str] = frozenset()
    """Known columns that are not needed; other unread columns are noted."""
    headers: tuple[frozenset[str], ...] = ()
    """The first line has the names of one of these; if there are none, any CSV table fits."""

    def fits(self, first_line: str) -> bool:
        names = set(first_line.split(","))
        return any(names >= one for one in self.headers) if self.headers else "," in first_line

    def load(self, path: Path) -> Workload:
        """Load a trace with these columns."""
        file = reading.open_trace(path)
        lines = rows(file)
        header = [name.lower() for name in header_of(file, lines)]
        places = _places(file, header, self)
        # A misspelt column must not go unnoticed.
        read = {header[at] for at in places.values()} | self.passed_over
        unread = ", ".join(reading.quoted(name) for name in header if name not in read)
        notes = [f"columns not read: {unread}"] if unread else []
        harvest = Harvest(file, self.format, notes)
        parse: Mapping[str, Callable[[str], Any]] = {
            "submitted_s": self.clock,
            "gpus": reading.whole if self.expects_cpu_jobs else _some_gpus,
            "duration_s": reading.duration,
            "limit_s": _limit_s,
        }

        def take(line: int, row: Row) -> None:
            values = {field: parse.get(field, str)(row[at]) for field, at in places.items()}
            harvest.keep(line, TraceJob(**{"job_id": f"line{line}", **values}))

        harvest.each(rows_below(file, header, lines), take)
        return harvest.workload()


def _places(file: TraceFile, header: Sequence[str], layout: Layout) -> Mapping[str, int]:
    """Return the position of each column; ``TraceError`` if one that is needed is missing."""
    found = {}
    for field, names in layout.columns.items():
        there = [name for name in names if name in header]
        if there or field in NEEDED:
            found[field] = position(file, header, (there or names)[0])
    return found


def _some_gpus(text: str) -> int:
    gpus = reading.whole(text)
    if gpus == 0:
        raise BadValueError("the job requests no GPU")
    return gpus


def _limit_s(text: str) -> float | None:
    if not text:
        return None
    limit_s = reading.number(text, "the time limit")
    if limit_s <= 0.0:
        raise BadValueError(f"the time limit is not above zero: {reading.quoted(text)}")
    return limit_s
