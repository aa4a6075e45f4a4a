"""A ``JobMemory`` for tests that takes squeue's rows and parses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.job_memory import JobMemory
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.parse_jobs import RowReader


class RowMemory:
    """Reads rows and remembers jobs as the command driver does."""

    def __init__(self, now_s: float | None = None) -> None:
        """``now_s`` is slurmctld's clock; None stands for this host's."""
        self._reader = RowReader()
        self._memory = JobMemory()
        if now_s is not None:
            self._memory.now_s = now_s

    def learn(self, rows: Sequence[JobRow], records: Mapping[int, str]) -> None:
        self._memory.learn(self._reader.read(rows), records)

    def unknown(self, rows: Sequence[JobRow]) -> tuple[JobRow, ...]:
        """Return the rows of the jobs whose full records must be read from scontrol."""
        by_key = {row.key: row for row in rows}
        return tuple(by_key[job.key] for job in self._memory.unknown(self._reader.read(rows)))

    def jobs(self, rows: Sequence[JobRow]) -> tuple[JobStatus, ...]:
        return self._memory.jobs(self._reader.read(rows))
