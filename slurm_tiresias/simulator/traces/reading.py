"""Code shared by all loaders: opening a trace, reading its numbers, and collecting its jobs.

There are two kinds of problems. An invalid line (a negative duration, a malformed number, a
duplicate id) makes the whole file doubtful: the file is refused, and the error names the line. A
valid line that is not a job to simulate (no GPU, never ran, not ended yet) is dropped, and the
workload reports it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from slurm_tiresias.errors import SlurmAnswerError, TraceError
from slurm_tiresias.simulator.workload import Dropped, TraceJob, Workload

HEAD_BYTES = 65536
"""Maximum length of the first line of a trace, from which its format is detected."""

MOST_GPUS = 1_000_000
"""A job may be wider than the cluster, but one with more GPUs than this is dropped as bogus."""

MOST_SECONDS = 1e12
"""Thirty thousand years; longer times and durations are taken as errors."""

NO_GPU = "asks for no GPU"
ABSURDLY_WIDE = f"asks for more than {MOST_GPUS:,} GPUs"
RAN_FOR_NO_TIME = "ran for no time"
NEVER_RAN = "never ran"
NOT_OVER = "was not over when the trace ended"
ENDS_TOO_EARLY = "ends before it starts"

Row = TypeVar("Row")


class BadValueError(ValueError):
    """Raised for an invalid value; ``Harvest.each`` adds the line."""


class NoJobError(Exception):
    """Raised for a valid line that is not a job to simulate, with the reason."""


def quoted(text: str) -> str:
    """Quote untrusted text for a message: short, and without control characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def number(text: str, what: str) -> float:
    """Parse a finite number of plausible size."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if -MOST_SECONDS <= value <= MOST_SECONDS:
        return value
    raise BadValueError(
        f"{what} is {f'not a plausible number: {quoted(text)}' if text else 'missing'}"
    )


def duration(text: str) -> float:
    """Parse the running time of a job in seconds; it must be zero or more."""
    value_s = number(text, "the duration")
    if value_s < 0.0:
        raise BadValueError(f"the duration is negative: {quoted(text)}")
    return value_s


def whole(text: str, what: str = "the number of GPUs") -> int:
    """Parse a count, zero or more; ``8.0`` is accepted as a whole number."""
    value = number(text, what)
    if value < 0.0 or value != int(value):
        raise BadValueError(f"{what} is not a whole number of zero or more: {quoted(text)}")
    return int(value)


def date_s(text: str) -> float:
    """Parse a date and time as seconds since the epoch; in UTC unless it has an offset."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadValueError(f"this is not a date and time: {quoted(text)}") from None


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file that has been read completely."""

    path: Path
    text: str
    sha256: str

    def refuse(self, line: int, what: str, remedy: str = "") -> TraceError:
        """Return an error that names this file and a line."""
        return refusal(self.path, line, what, remedy)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the line numbers and the lines without line breaks."""
        return enumerate((line.rstrip("\r") for line in self.text.split("\n")[:-1]), start=1)


def refusal(path: Path, line: int, what: str, remedy: str = "") -> TraceError:
    return TraceError(
        f"{path}, line {line}: {what}", remedy or "correct that line, or remove it from the trace"
    )


def open_trace(path: Path, errors: str = "strict") -> TraceFile:
    """Read a file as text; ``TraceError`` if it is missing, empty, binary or truncated.

    ``errors`` says how to treat bytes that are not UTF-8, as in ``bytes.decode``.
    """
    return as_trace(path, _bytes(path), errors)


def as_trace(path: Path, data: bytes, errors: str = "strict") -> TraceFile:
    """Return bytes as a trace file. For a command's output, ``path`` is a name for messages."""
    if not data.strip():
        raise _empty(path)
    try:
        text = data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise _binary(path, data, error.start) from None
    if "\0" in text:
        raise _binary(path, data, data.index(0))
    # The last line of a truncated file may look complete but lack its last digits.
    if not text.endswith("\n"):
        raise refusal(
            path,
            text.count("\n") + 1,
            "the file ends within this line",
            "fetch the file again, or end the line with a line break if nothing is missing",
        )
    return TraceFile(path, text, hashlib.sha256(data).hexdigest())


def first_line(path: Path) -> tuple[int, str]:
    """Return the number and the text of the first line that is not blank, to detect the format;
    ``TraceError`` if the file is empty."""
    beginning = _bytes(path, HEAD_BYTES)
    if not beginning.strip():
        raise _empty(path)
    if b"\0" in beginning:
        raise _binary(path, beginning, beginning.index(0))
    lines = enumerate(beginning.decode("utf-8-sig", "replace").split("\n"), start=1)
    return next(((at, words.strip()) for at, words in lines if words.strip()), (1, ""))


def _empty(path: Path) -> TraceError:
    return refusal(path, 1, "the file is empty", "name a file with jobs in it")


def _bytes(path: Path, size: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(
            f"{path} cannot be read: {why}", "name a file that exists and that you may read"
        ) from None


def _binary(path: Path, data: bytes, position: int) -> TraceError:
    line = data.count(b"\n", 0, position) + 1
    return refusal(path, line, "the file is not text in UTF-8", "unpack it if it is compressed")


@dataclass(slots=True)
class Harvest:
    """Collects the jobs and the dropped lines of a trace while it is read."""

    file: TraceFile
    format: str
    notes: list[str] = field(default_factory=list)
    _jobs: list[TraceJob] = field(default_factory=list)
    _dropped: list[Dropped] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)
    _out_of_order: int = 0

    def each(self, rows: Iterable[tuple[int, Row]], take: Callable[[int, Row], None]) -> None:
        """Take each row; refuse the file if one is invalid, and drop the lines without a job."""
        for line, row in rows:
            try:
                take(line, row)
            except BadValueError as error:
                raise self.file.refuse(line, str(error)) from None
            except SlurmAnswerError as error:
                raise self.file.refuse(line, error.what) from None
            except NoJobError as reason:
                self.drop(line, str(reason))

    def keep(self, line: int, job: TraceJob) -> None:
        """Add a job, or drop its line if there is nothing to simulate. ``BadValueError`` for a
        duplicate id."""
        if not job.job_id:
            raise BadValueError("the job id is missing")
        before = self._seen.setdefault(job.job_id, line)
        if before != line:
            raise BadValueError(f"the job id {quoted(job.job_id)} was already on line {before}")
        if job.gpus == 0:
            self.drop(line, NO_GPU)
        elif job.gpus > MOST_GPUS:
            self.drop(line, ABSURDLY_WIDE)
        elif job.duration_s == 0.0:
            self.drop(line, RAN_FOR_NO_TIME)
        else:
            if self._jobs and job.submitted_s < self._jobs[-1].submitted_s:
                self._out_of_order += 1
            self._jobs.append(job)

    def drop(self, line: int, why: str) -> None:
        self._dropped.append(Dropped(line, why))

    def workload(self) -> Workload:
        """Return all jobs by submission, with times counted from the first; ``TraceError`` if there
        are none."""
        if not self._jobs:
            raise self._nothing_left()
        jobs = sorted(self._jobs, key=lambda job: job.submitted_s)
        start_s = jobs[0].submitted_s
        if self._out_of_order:
            self.notes.append(
                f"put in order: {self._out_of_order:,} jobs came before the job on the line above"
            )
        return Workload(
            name=self.file.path.name,
            jobs=tuple(replace(job, submitted_s=job.submitted_s - start_s) for job in jobs),
            dropped=tuple(sorted(self._dropped, key=lambda dropped: dropped.line)),
            notes=tuple(self.notes),
            format=self.format,
            sha256=self.file.sha256,
        )

    def _nothing_left(self) -> TraceError:
        if not self._dropped:
            last_line = self.file.text.count("\n")
            return self.file.refuse(
                last_line, "there is no job in this file", "name a file with jobs in it"
            )
        first = min(self._dropped, key=lambda dropped: dropped.line)
        return self.file.refuse(
            first.line,
            f"no job of this file can be simulated; this one {first.why}",
            "name a file with jobs that ran on GPUs",
        )
