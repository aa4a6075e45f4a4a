"""Traces that are one CSV table with one job per line: column layouts, and a loader for them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a format. Of several names for a column, the first one in the header counts.

    Without a name for ``job_id``, jobs are named after their lines. ``clock`` parses the submission
    time. Jobs without GPUs are dropped if ``expects_cpu_jobs``; otherwise such a line is refused.
    """

    format: str
    job_id: tuple[str, ...]
    submitted: tuple[str, ...]
    gpus: tuple[str, ...]
    duration: tuple[str, ...]
    model: tuple[str, ...] = ()
    gpu_type: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    clock: Callable[[str], float] = lambda text: reading.number(text, "the time of submission")
    expects_cpu_jobs: bool = False
    passed_over: frozenset[str] = frozenset()
    """Known columns that are not needed; other unread columns are noted."""


def load(path: Path, layout: Layout) -> Workload:
    """Load a trace with this layout."""
    file = reading.open_trace(path)
    lines = rows(file)
    header = [name.lower() for name in header_of(file, lines)]
    columns = _Columns(file, header, layout)
    harvest = Harvest(file, layout.format, notes=columns.notes())
    for line, row in rows_below(file, header, lines):
        try:
            harvest.keep(line, columns.job(line, row))
        except BadValueError as error:
            raise file.refuse(line, str(error)) from None
    return harvest.workload()


class _Columns:
    """The positions of a job's fields in a row."""

    def __init__(self, file: TraceFile, header: Sequence[str], layout: Layout) -> None:
        self._file = file
        self._header = header
        self._layout = layout
        self._job_id = self._needed(layout.job_id) if layout.job_id else None
        self._submitted = self._needed(layout.submitted)
        self._gpus = self._needed(layout.gpus)
        self._duration = self._needed(layout.duration)
        self._limit = self._found(layout.limit)
        self._words = tuple(
            self._found(names)
            for names in (
                *(layout.model, layout.gpu_type, layout.user),
                *(layout.name, layout.group, layout.account),
            )
        )

    def job(self, line: int, row: Row) -> TraceJob:
        """Return the job of a row; ``BadValueError`` if the row is invalid."""
        row.append("")  # the value of missing columns, whose position is -1
        model, gpu_type, user, name, group, account = self._words
        job_id = f"line{line}" if self._job_id is None else row[self._job_id]
        return TraceJob(
            job_id,
            self._layout.clock(row[self._submitted]),
            self._gpu_count(row[self._gpus]),
            reading.duration(row[self._duration]),
            row[model],
            row[gpu_type],
            row[user],
            row[name],
            row[group],
            _limit_s(row[self._limit]),
            row[account],
        )

    def notes(self) -> list[str]:
        """Return notes on unread columns, so that a misspelt column does not go unnoticed."""
        layout = self._layout
        read = {self._header[at] for at in (*self._words, self._limit) if at >= 0}
        read |= {self._header[at] for at in (self._submitted, self._gpus, self._duration)}
        if self._job_id is not None:
            read.add(self._header[self._job_id])
        unread = [name for name in self._header if name not in read | layout.passed_over]
        return [f"columns not read: {', '.join(map(reading.quoted, unread))}"] if unread else []

    def _gpu_count(self, text: str) -> int:
        gpus = reading.whole(text)
        if gpus == 0 and not self._layout.expects_cpu_jobs:
            raise BadValueError("the job requests no GPU")
        return gpus

    def _needed(self, names: tuple[str, ...]) -> int:
        at = self._found(names)
        return position(self._file, self._header, names[0]) if at < 0 else at

    def _found(self, names: tuple[str, ...]) -> int:
        return next((self._header.index(name) for name in names if name in self._header), -1)


def _limit_s(text: str) -> float | None:
    if not text:
        return None
    limit_s = reading.number(text, "the time limit")
    if limit_s <= 0.0:
        raise BadValueError(f"the time limit is not above zero: {reading.quoted(text)}")
    return limit_s
