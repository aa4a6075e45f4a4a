"""The driver that reads and writes through the pyslurm binding, in a separate process.

It reads changed jobs through pyslurm, and writes priorities. For the rest it uses the command
driver, on which it is built:

- job fields that pyslurm does not show (``pyslurm_records.py``): squeue, once per job;
- a job's allocation on each node: pyslurm's call crashes if it was built for another release;
- node lists: pyslurm cannot clear one, nor ensure that the job is still pending;
- requeues: pyslurm's would restart a job that has ended meanwhile;
- nodes and partitions, slurmctld's clock and configuration, signals, accounting.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from slurm_tiresias.errors import BindingError, SlurmAnswerError, SlurmUnreachableError
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm import job_rows, parse_jobs, process, pyslurm_records, tally, write_lines
from slurm_tiresias.slurm.commands import MOST_JOBS_ONE_BY_ONE, CommandSlurm, in_parts
from slurm_tiresias.slurm.job_fields import STATES, JobFields
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import (
    Cluster,
    Commands,
    Driver,
    Lease,
    Observation,
    UnfinishedWriteError,
    Unpin,
    Update,
    Write,
    WriteFailure,
)
from slurm_tiresias.slurm.pyslurm_process import PyslurmProcess, check_fits
from slurm_tiresias.slurm.pyslurm_records import SeenJob
from slurm_tiresias.slurm.tally import Tally

log = logging.getLogger("tiresias-slurm")

MOST_WRITES_AT_ONCE = 50
"""These fit into a pipe, and take 50 ms."""

ASK_ALL_AGAIN_S = 60.0
"""How often squeue is asked about all jobs, because pyslurm does not show a change of only the
requested GPU type. If Slurm counts no GPUs it is asked each time: pyslurm then does not show their
number either."""

UNPINNED = 4294967295
"""The priority that makes Slurm compute one itself (slurm.h, INFINITE)."""

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class _Record:
    """One record of slurmctld: as pyslurm shows it, squeue's row (None: not yet asked), and the
    rows made from both, one for each job."""

    seen: SeenJob
    shown: JobRow | None
    rows: tuple[JobRow, ...]


class PyslurmSlurm(CommandSlurm):
    """Slurm through pyslurm, and through its commands for the rest. Implements ``protocol.Slurm``.

    Not thread-safe, except for ``runs``, which only runs sacct.
    """

    def __init__(
        self,
        worker: PyslurmProcess,
        commands: Commands | None = None,
        lease: Lease | None = None,
        count: Tally | None = None,
        *,
        or_commands: bool = False,
    ) -> None:
        """``or_commands``: fall back to the commands alone if pyslurm does not work."""
        super().__init__(commands, lease, count)
        self._driver = Driver(f"pyslurm {worker.version}")
        self._worker: PyslurmProcess | None = worker
        self._or_commands = or_commands
        self._given_up = False
        self._asked_all_s = _NEVER
        self._records: dict[int, _Record] = {}
        self._ids: dict[str, int] = {}

    def cluster(self) -> Cluster:
        """Read the facts about the cluster; raise ``BindingError`` if slurmctld's release differs
        from pyslurm's."""
        facts = super().cluster()
        if not self._given_up:
            try:
                check_fits(self._running_worker(), facts.version)
            except BindingError as error:
                self._give_up(error)
        return facts

    def _read(self, at_s: float) -> tuple[Observation, float]:
        if not self._given_up:
            try:
                return super()._read(at_s)
            except BindingError as error:
                self._give_up(error)
        return super()._read(at_s)

    def _listed(self) -> tuple[JobFields, ...]:
        if self._given_up:
            return super()._listed()
        answer = self._ask_pyslurm(tally.LOAD, {})
        try:
            self._take_in(answer)
        except BaseException:
            # The changes were stored only in part: a new worker will report everything.
            self._end_worker()
            raise
        return self._rows.read(row for record in self._records.values() for row in record.rows)

    def _take_in(self, answer: Mapping[str, Any]) -> None:
        for job_id in answer["gone"]:
            self._forget(self._records.pop(job_id))
        for seen in map(SeenJob._make, answer["jobs"]):
            before = self._records.get(seen.id)
            asked = None if before is None else pyslurm_records.asks_for(before.seen)
            # squeue's row stays valid while pyslurm shows the same request.
            holds = asked == pyslurm_records.asks_for(seen)
            self._put(seen, before.shown if before and holds else None)
        self._complete_records()

    def _put(self, seen: SeenJob, shown: JobRow | None) -> None:
        before = self._records.get(seen.id)
        if before is not None:
            self._forget(before)
        rows: tuple[JobRow, ...] = ()
        try:
            if shown is not None:
                rows = pyslurm_records.rows(seen, shown)
            if rows and STATES.get(seen.state) is JobState.PENDING:
                self._details[seen.id] = pyslurm_records.details(seen)
        except SlurmAnswerError as error:
            self._unread_records.append(error)
            # Keep what is readable, or what squeue shows.
            rows = rows or ((shown,) if shown is not None else ())
        self._records[seen.id] = _Record(seen, shown, rows)
        if not seen.array_tasks_waiting:
            self._ids |= {row.key: seen.id for row in rows}

    def _forget(self, record: _Record) -> None:
        self._details.pop(record.seen.id, None)
        for row in record.rows:
            self._ids.pop(row.key, None)

    def _complete_records(self) -> None:
        """Ask squeue for the fields that pyslurm does not show, if they are unknown or outdated."""
        wanted = {job_id for job_id, record in self._records.items() if record.shown is None}
        now_s = time.monotonic()
        if now_s - self._asked_all_s >= (ASK_ALL_AGAIN_S if self._counts_gpus else 0.0):
            self._asked_all_s = now_s
            wanted |= self._records.keys()
        if not wanted:
            return
        for job_id, row in self._rows_by_squeue(wanted).items():
            record = self._records.get(job_id)
            if record is not None and record.shown != row:
                self._put(record.seen, row)

    def _rows_by_squeue(self, job_ids: set[int]) -> Mapping[int, JobRow]:
        """Return one row per record, because all tasks in one record have the same request."""
        spoken = self._release_of_squeue()
        options = [*job_rows.ARGUMENTS]
        if len(job_ids) <= MOST_JOBS_ONE_BY_ONE:
            options.append(f"--jobs={','.join(map(str, sorted(job_ids)))}")
        answer, separator = self._ask_squeue(job_rows.columns(spoken), *options)
        if process.UNKNOWN_JOB in answer.stderr:
            return {}
        rows = job_rows.rows(self._squeues(answer), separator, spoken)
        return {int(row.raw_id): row for row in filter(parse_jobs.has_id, rows)}

    # Writing

    def _send(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Send the leading writes that pyslurm can do through it, the rest through scontrol, so
        that their order is kept."""
        if self._given_up:
            return super()._send(writes)
        try:
            first = list(takewhile(self._is_for_pyslurm, writes))
            failures = self._send_through_pyslurm(first)
        except BindingError as error:
            self._give_up(error)
            # Writing some of them a second time is harmless.
            return super()._send(writes)
        rest = writes[len(first) :]
        try:
            return (*failures, *(super()._send(rest) if rest else ()))
        except UnfinishedWriteError as error:
            answered = len(first) + error.answered
            raise UnfinishedWriteError(error, answered, (*failures, *error.refused)) from error

    def _is_for_pyslurm(self, write: Write) -> bool:
        # pyslurm cannot address single tasks of an array's pending record, and it ignores a site
        # factor of 0.
        if write.key not in self._ids:
            return False
        match write:
            case Unpin():
                return True
            case Update(node_list=None, excluded=None, site_factor=factor):
                return factor != 0
        return False

    def _send_through_pyslurm(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        failures: list[WriteFailure] = []
        for number, some in enumerate(in_parts(writes, MOST_WRITES_AT_ONCE)):
            wanted = [(self._ids[write.key], self._changes(write)) for write in some]
            request = {"writes": wanted}
            until_s = self._lease.check()
            try:
                answer = self._ask_pyslurm(tally.MODIFY, request, len(some), until_s)
            except SlurmUnreachableError as error:
                answered = number * MOST_WRITES_AT_ONCE
                raise UnfinishedWriteError(error, answered, failures) from error
            failures += [WriteFailure(some[place], said) for place, said in answer["refused"]]
        return failures

    def _changes(self, write: Write) -> Mapping[str, int]:
        """Return the write as arguments of ``pyslurm.JobSubmitDescription``."""
        write_lines.lines(write)  # raises ValueError for an invalid write
        if not isinstance(write, Update):
            return {"priority": UNPINNED}
        changes = {"priority": write.priority, "site_factor": write.site_factor}
        if write.start_in_s is not None:
            soon_s = time.time() + self._clock.ahead_s + max(write.start_in_s, 0)
            changes["begin_time"] = int(soon_s)
        return {name: value for name, value in changes.items() if value is not None}

    # The worker

    @property
    def worker_pid(self) -> int | None:
        """The id of the process that has imported pyslurm; None if there is none now."""
        return self._worker.pid if self._worker else None

    def close(self) -> None:
        """End the process that has imported pyslurm; the next request starts another."""
        self._end_worker()

    def _ask_pyslurm(
        self, what: str, request: Mapping[str, Any], requests: int = 1, until_s: float = math.inf
    ) -> Mapping[str, Any]:
        """Return the worker's answer. After any error the worker is ended and all is read anew.

        ``what`` and ``requests`` are for the tally.
        """
        self._expect_it_up()
        worker = self._running_worker()
        try:
            with self._tally.counting(what, requests):
                answer = worker.ask(
                    request, self._commands.timeout_s, until_s=until_s, meanwhile=self._lease.renew
                )
        except BaseException:
            self._end_worker()
            raise
        self._answered_s = time.monotonic()
        return answer

    def _running_worker(self) -> PyslurmProcess:
        if self._worker is None:
            self._worker = PyslurmProcess(self._commands)
            self._driver = Driver(f"pyslurm {self._worker.version}")
        return self._worker

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None
        self._records, self._details, self._ids = {}, {}, {}
        self._asked_all_s = _NEVER

    def _give_up(self, error: BindingError) -> None:
        """Fall back to the commands alone if that is allowed, else raise the error."""
        if not self._or_commands:
            raise error
        self._end_worker()
        self._given_up = True
        self._driver = Driver(because=error.what)
        log.warning("continues with Slurm's commands alone: %s", error.what)
