"""The driver that reads and writes through the pyslurm binding, in a process of its own.

The binding tells which jobs have changed and what they are now, and the same of the nodes; and it
writes priorities. For the rest there are the commands, on which this driver is built:

- what pyslurm does not show of a job (``pyslurm_records.NOT_SHOWN``): squeue is asked, once a job;
- what a job holds on each node: pyslurm's answer crashes where it was built for another release;
- node lists: pyslurm cannot clear one, nor see to it that the job is still pending;
- requeues: pyslurm's would run a job again that has ended meanwhile;
- slurmctld's clock and configuration, the topology, signals, accounting.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from slurm_tiresias.errors import BindingError, SlurmAnswerError
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.slurm import (
    job_rows,
    parse_config,
    parse_jobs,
    parse_nodes,
    process,
    pyslurm_records,
    tally,
    write_lines,
)
from slurm_tiresias.slurm.commands import (
    MOST_JOBS_ONE_BY_ONE,
    CommandSlurm,
    in_parts,
    job_questions,
    job_records,
)
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_fields import JobFields
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import (
    Cluster,
    Commands,
    Driver,
    Lease,
    Observation,
    Partition,
    Reservation,
    Unpin,
    Update,
    Write,
    WriteFailure,
)
from slurm_tiresias.slurm.pyslurm_process import PyslurmProcess, check_fits
from slurm_tiresias.slurm.pyslurm_records import SeenJob, SeenNode, SeenPartition, SeenReservation
from slurm_tiresias.slurm.tally import Tally

log = logging.getLogger("tiresias-slurm")

MOST_WRITES_AT_ONCE = 500
"""A pipe holds them; and so many are done in half a second."""

ASK_ALL_AGAIN_S = 60.0
"""Who changes the type of GPUs that a job asks for, and nothing else, changes nothing that pyslurm
shows. Where Slurm counts no GPUs this is 0: then it does not show their number either."""

UNPINNED = 4294967295
"""The priority that has Slurm compute one itself (slurm.h, INFINITE)."""

READINGS = 4
"""Jobs, nodes, partitions and reservations: slurmctld is asked for each."""

_NEVER = -math.inf

_Machines = tuple[tuple[Node, ...], tuple[Partition, ...], tuple[Reservation, ...]]


@dataclass(frozen=True, slots=True)
class _Record:
    """One record: as pyslurm shows it, what squeue said of it (None: not yet), and the jobs that
    both together tell of."""

    seen: SeenJob
    shown: JobRow | None
    jobs: tuple[JobFields, ...]


class PyslurmSlurm(CommandSlurm):
    """Slurm by pyslurm, and by its commands where that does not do. Implements ``protocol.Slurm``.

    Not to be shared between threads, but for ``runs``, which asks sacct and nothing else.
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
        """``or_commands``: where pyslurm turns out not to work here, go on by commands alone."""
        super().__init__(commands, lease, count)
        self._driver = Driver(f"pyslurm {worker.version}")
        self._worker: PyslurmProcess | None = worker
        self._or_commands = or_commands
        self._given_up = False
        self._counts_gpus = True
        self._asked_all_s = _NEVER
        self._records: dict[int, _Record] = {}
        self._details: dict[int, JobDetails] = {}
        self._ids: dict[str, int] = {}
        self._machine_lists: Mapping[str, Any] = {}
        self._machines: tuple[parse_nodes.Switches, _Machines] | None = None

    def cluster(self) -> Cluster:
        """The facts about the cluster; ``BindingError`` where slurmctld is of another release."""
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
                return self._read_through_pyslurm(at_s)
            except BindingError as error:
                self._give_up(error)
        return super()._read(at_s)

    def _read_through_pyslurm(self, at_s: float) -> tuple[Observation, float]:
        listed = self._listed()
        unknown = [job for job in self._memory.unknown(listed) if job.raw_id not in self._details]
        questions = job_questions(unknown, len(listed))
        config, topology, *answers = self._show(["show config", "show topology", *questions])
        self._counts_gpus = parse_config.counts_gpus(config)
        self._memory.counts_memory = parse_config.counts_memory(config)
        records = job_records(questions, answers)
        listed = self._whole(listed, self._memory.live_but_missing(listed))
        self._learn(listed, unknown, questions, records, self._details)
        nodes, partitions, reservations = self._made_of(
            parse_nodes.leaf_switches(topology, self._unread_records.append)
        )
        jobs = self._memory.jobs(listed)
        return Observation(at_s, jobs, nodes, partitions, reservations), parse_config.clock_s(
            config
        )

    def _listed(self) -> tuple[JobFields, ...]:
        if self._given_up:
            return super()._listed()
        answer = self._ask_pyslurm(tally.LOAD, {}, READINGS)
        try:
            self._take_in(answer)
        except BaseException:
            # What has changed was not taken in whole: a new worker tells all again.
            self._end_worker()
            raise
        return tuple(job for record in self._records.values() for job in record.jobs)

    def _take_in(self, answer: Mapping[str, Any]) -> None:
        for job_id in answer["gone"]:
            self._forget(self._records.pop(job_id))
        for seen in map(SeenJob._make, answer["jobs"]):
            before = self._records.get(seen.id)
            asked = None if before is None else pyslurm_records.asks_for(before.seen)
            # What squeue said of the job holds for as long as it would say so again.
            holds = asked == pyslurm_records.asks_for(seen)
            self._put(seen, before.shown if before and holds else None)
        self._ask_squeue()
        if answer["machines"] is not None:
            self._machine_lists, self._machines = answer["machines"], None

    def _put(self, seen: SeenJob, shown: JobRow | None) -> None:
        before = self._records.get(seen.id)
        if before is not None:
            self._forget(before)
        jobs: tuple[JobFields, ...] = ()
        try:
            if shown is not None:
                jobs = pyslurm_records.fields(seen, shown, parse_jobs.options(shown))
            if jobs and jobs[0].state is JobState.PENDING:
                self._details[seen.id] = pyslurm_records.details(seen)
        except SlurmAnswerError as error:
            self._unread_records.append(error)
            # As squeue has it, or without what cannot be read.
            jobs = jobs or ((parse_jobs.fields(shown),) if shown is not None else ())
        self._records[seen.id] = _Record(seen, shown, jobs)
        if not seen.array_tasks_waiting:
            self._ids |= {job.key: seen.id for job in jobs}

    def _forget(self, record: _Record) -> None:
        for job in record.jobs:
            self._details.pop(job.raw_id, None)
            self._ids.pop(job.key, None)

    def _ask_squeue(self) -> None:
        """What pyslurm does not show of the jobs of which that is not known, or not for long."""
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
        """One row a record, for of the tasks in one record all ask for the same."""
        spoken = self._release_of_squeue()
        squeue = [self._commands.squeue, *job_rows.arguments(self._separator, spoken)]
        if len(job_ids) <= MOST_JOBS_ONE_BY_ONE:
            squeue.append(f"--jobs={','.join(map(str, sorted(job_ids)))}")
        answer = self._run(tally.SQUEUE, squeue)
        if process.UNKNOWN_JOB in answer.stderr:
            return {}
        rows = job_rows.rows(self._checked(squeue, answer), self._separator, spoken)
        are_numbers = (row for row in rows if row.raw_id.isascii() and row.raw_id.isdecimal())
        return {int(row.raw_id): row for row in are_numbers}

    def _made_of(self, switches: parse_nodes.Switches) -> _Machines:
        """The nodes, partitions and reservations, the same objects while nothing differs."""
        if self._machines is None or self._machines[0] != switches:
            lists = self._machine_lists
            complain = self._unread_records.append
            seen_partitions = map(SeenPartition._make, lists["partitions"])
            partitions = pyslurm_records.partitions(seen_partitions, complain)
            seen = map(SeenNode._make, lists["nodes"])
            nodes = pyslurm_records.nodes(seen, partitions, switches, complain)
            kept = pyslurm_records.reservations(
                map(SeenReservation._make, lists["reservations"]), nodes, complain
            )
            self._machines = switches, (nodes, partitions, kept)
        return self._machines[1]

    # Writing

    def _send(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Through pyslurm up to the first that it cannot do, and the rest by scontrol: in order."""
        if self._given_up:
            return super()._send(writes)
        try:
            first = list(takewhile(self._is_for_pyslurm, writes))
            failures = self._send_through_pyslurm(first)
        except BindingError as error:
            self._give_up(error)
            # What was written already is only written once more.
            return super()._send(writes)
        rest = writes[len(first) :]
        return (*failures, *(super()._send(rest) if rest else ()))

    def _is_for_pyslurm(self, write: Write) -> bool:
        """Of an array's waiting record pyslurm could not tell the tasks that are meant; and it
        takes a site factor of 0 for none."""
        if write.key not in self._ids:
            return False
        match write:
            case Unpin():
                return True
            case Update(node_list=None, site_factor=factor):
                return factor != 0
        return False

    def _send_through_pyslurm(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        failures: list[WriteFailure] = []
        for some in in_parts(writes, MOST_WRITES_AT_ONCE):
            wanted = [(self._ids[write.key], self._changes(write)) for write in some]
            request = {"writes": wanted}
            until_s = self._lease.check()
            answer = self._ask_pyslurm(tally.MODIFY, request, len(some), until_s)
            failures += [WriteFailure(some[place], said) for place, said in answer["refused"]]
        return failures

    def _changes(self, write: Write) -> Mapping[str, int]:
        """The write as ``pyslurm.JobSubmitDescription`` names it."""
        write_lines.lines(write)  # refuses what can never be meant
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
        """The process that has imported pyslurm; None where there is none now."""
        return self._worker.pid if self._worker else None

    def close(self) -> None:
        """End the process that has imported pyslurm; whatever is asked next begins another."""
        self._end_worker()

    def _ask_pyslurm(
        self, what: str, request: Mapping[str, Any], requests: int, until_s: float = math.inf
    ) -> Mapping[str, Any]:
        """Its answer. It is asked anew from the beginning after anything went wrong.

        ``what`` that is and how many ``requests`` it makes are for the tally.
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
        """Go on by commands alone, where that is allowed; else the error stands."""
        if not self._or_commands:
            raise error
        self._end_worker()
        self._given_up = True
        self._driver = Driver(because=error.what)
        log.warning("goes on by Slurm's commands alone: %s", error.what)
