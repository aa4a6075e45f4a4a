"""The driver that talks to Slurm through its commands.

Reading the cluster takes one squeue and one scontrol, 500 writes one more scontrol.
Measured with 2000 pending jobs this is as fast as the C library, and it works with every release.
"""

from __future__ import annotations

import logging
import math
import os
import pwd
import random
import re
import secrets
import shutil
import signal as signals
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from slurm_tiresias.errors import SlurmAnswerError, SlurmUnreachableError, TiresiasError
from slurm_tiresias.model import JobSpec
from slurm_tiresias.slurm import (
    job_details,
    job_rows,
    notation,
    parse_accounting,
    parse_config,
    parse_jobs,
    parse_limits,
    parse_nodes,
    process,
    release,
    tally,
    write_lines,
)
from slurm_tiresias.slurm.clock import Moment, SlurmClock
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_fields import JobFields
from slurm_tiresias.slurm.job_memory import JobMemory
from slurm_tiresias.slurm.parse_jobs import RowReader
from slurm_tiresias.slurm.process import Answer
from slurm_tiresias.slurm.protocol import (
    NOT_PASSED_ON,
    AccountedRun,
    Cluster,
    Commands,
    Driver,
    Lease,
    Limit,
    Observation,
    SetNode,
    Unbounded,
    UnfinishedWriteError,
    Update,
    Write,
    WriteFailure,
    says_that_job_ended,
)
from slurm_tiresias.slurm.release import Release
from slurm_tiresias.slurm.tally import Tally
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

MOST_JOBS_ONE_BY_ONE = 48
"""Asking about one job takes 1.4 ms, about all of 2000 jobs 75 ms."""

MOST_AMBIGUOUS_ONE_BY_ONE = 150
"""Per reading, which takes 0.2 s. The rest are asked about in the next readings."""

MOST_MISSING_CHECKED = 16
"""How many of the jobs that squeue may have left out are checked, at random. A truncated list lacks
many jobs, but a user may also fake as many records as fit into comments."""

MOST_KEYS_A_COMMAND = 500
"""Keeps a command line far below the kernel's limit."""

ADMIN_LEVELS = ("Operator", "Administrator")
"""The admin levels that may update other users' jobs, as ``sacctmgr show user`` spells them."""

MOST_READINGS = 5
"""How often a reading is tried if this host's clock is set while it is under way."""

SCANCEL_LIMITS_S = (4.0, 8.0)
"""If a job is requeued after scancel has listed it, scancel waits 5 s and longer, 95 s in all, and
jobs after it wait as well. The next scancel leaves the job out, so the first ones get less time."""

PING_TIMEOUT_S = 5.0

QUICK_PING_S = 1.0
"""A standby has no time for a longer ping."""

PING_AFTER_S = 1.0
"""After this long an answer no longer shows that slurmctld is up, so each cycle pings once."""

_NEVER = float("-inf")

Item = TypeVar("Item")

_CLUSTER_QUESTIONS = (
    "show config",
    "show partition",
    "show node",
    "show topology",
    "show reservation",
)
_LIMIT_QUESTIONS = (
    "show config",
    "show licenses",
    "show assoc_mgr flags=qos,assoc",
    "show partition",
)
_UNKNOWN_LIMIT = Limit("limits that cannot be read", 0.0, 0.0, math.inf)
_SHOW_ALL_JOBS = "show job"
_NOT_THERE = re.compile(
    r"(?:slurm_load_jobs? error: )?Invalid job id specified(?: for job .*)?|Job \S+ not found"
    r"|(?:scontrol: error: )?No topology information available"
)
_PROMPT = re.compile(r"\A(?:scontrol: )+")
_SIGNAL = re.compile(r"(?:SIG)?[A-Z][A-Z0-9+-]*", re.ASCII)
_EXIT_CODE = re.compile(r" ExitCode=(\d{1,3}:\d{1,3}) ", re.ASCII)
_SIGNALLED = re.compile(r"Kill job error on job id ([\w+]+)(?=:)", re.ASCII)
_PING = re.compile(r"^Slurmctld\(\S*\) at (\S+) is UP", re.MULTILINE)
"""The primary is listed first, then the backups in the order in which they take over."""


class CommandSlurm:
    """Slurm through squeue, scontrol, sacct and scancel. Implements ``protocol.Slurm``.

    It remembers what each job requested before it started, and each allocation while it lasts.
    Not thread-safe, except for ``runs``.
    """

    def __init__(
        self,
        commands: Commands | None = None,
        lease: Lease | None = None,
        count: Tally | None = None,
        because: str = "",
    ) -> None:
        """Without a ``lease`` writes are always allowed. ``count`` counts the commands.
        ``because`` says why this driver was chosen if another was tried first."""
        self._driver = Driver(because=because)
        self._commands = commands or Commands()
        self._lease: Lease = lease or Unbounded()
        self._tally = count or Tally()
        self._environment = process.environment(self._commands.environment)
        self._rows = RowReader()
        self._memory = JobMemory()
        self._details: dict[int, JobDetails] = {}
        """Details of jobs, by raw id, for which scontrol need not be asked; none with this driver.
        """
        self._counts_gpus = True
        self._unread_records: list[SlurmAnswerError] = []
        """Unreadable records of nodes, partitions and so on in the current reading."""
        self._odd_records = WarnOnce("what cannot be read of Slurm's answer is left out")
        self._unread_accounting = WarnOnce("a row of accounting is passed over")
        self._unread_limits = WarnOnce("jobs preempt one at a time, for limits cannot be read")
        self._limits: parse_limits.Limits | None = None
        """The limits since the last reading; None if nothing has asked for them."""
        self._answered_s = _NEVER
        self._clock = SlurmClock()
        self._squeue_file: tuple[int, int, int] | None = None
        self._release = release.of((*release.TESTED[-1], 0))

    @property
    def driver(self) -> Driver:
        """The driver in use."""
        return self._driver

    def cluster(self) -> Cluster:
        """The facts about the cluster that do not change while slurmctld runs."""
        (answer,) = self._show(["show config"])
        found = parse_config.cluster(answer, time.time())
        if not found.accounting or found.jobs_are_private:
            return found
        if release.of(found.version).shows_slurmdbd:
            return replace(found, jobs_are_private=self._accounting_hides_jobs())
        return replace(found, jobs_are_private=_slurmdbd_conf_hides_jobs(answer))

    def _accounting_hides_jobs(self) -> bool:
        """Whether slurmdbd hides jobs; True if unknown, since a disclosure cannot be undone."""
        question = [self._commands.sacctmgr, "--noheader", "--parsable2", "show", "configuration"]
        try:
            answer = self._run(tally.SACCTMGR, question)
        except TiresiasError as error:
            why = str(error)
        else:
            if parse_config.OF_SLURMDBD in answer.stdout:
                return parse_config.hides_jobs(answer.stdout)
            why = answer.stderr.partition("\n")[0] or "sacctmgr shows no settings of it"
        # No warning: the command line also queries the cluster, and does not need this.
        log.info(
            "whether slurmdbd keeps jobs private is unknown, so users see only their own jobs "
            "until the controller is restarted: %s",
            why,
        )
        return True

    def may_operate(self) -> bool:
        """Whether this user is SlurmUser, root, or an operator by accounting."""
        (config,) = self._show(["show config"])
        if os.geteuid() in (0, parse_config.slurm_user_id(config)):
            return True
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return False
        question = ["--noheader", "--parsable2", "show", "user", user, "format=AdminLevel"]
        answer = self._run(tally.SACCTMGR, [self._commands.sacctmgr, *question])
        return answer.stdout.strip() in ADMIN_LEVELS

    def acting_host(self) -> str:
        """The host of the active slurmctld, as slurm.conf names it; "" if none answers."""
        found = _PING.search(self._ping(QUICK_PING_S).stdout)
        return found[1] if found else ""

    def observe(self) -> Observation:
        """Read all jobs that slurmctld remembers (ended ones too), all nodes, all partitions."""
        self._limits = None
        for _ in range(MOST_READINGS):
            began = Moment.now()
            self._unread_records.clear()
            seen, shown_s = self._read(began.clock_s)
            if self._clock.compare(began, shown_s):
                if unread := self._unread_records[:5]:
                    self._odd_records.warn("; ".join(error.what for error in unread))
                else:
                    self._odd_records.clear()
                return replace(self._clock.applied(seen), steady_s=began.steady_s)
        raise SlurmAnswerError(
            f"This host's clock was set during each of {MOST_READINGS} readings of the jobs",
            "find out what sets the clock, and let one service set it (chronyc sources, "
            "timedatectl)",
        )

    def _read(self, at_s: float) -> tuple[Observation, float]:
        """Return what Slurm shows, and slurmctld's clock at that time."""
        listed = self._listed()
        unknown = [job for job in self._memory.unknown(listed) if job.raw_id not in self._details]
        questions = [_SHOW_ALL_JOBS]
        if self._details or not self._memory.is_empty:
            questions = _job_questions(unknown, len(listed))
        config_text, partition_text, node_text, topology_text, reservation_text, *job_texts = (
            self._show([*_CLUSTER_QUESTIONS, *questions])
        )
        shown_s = parse_config.clock_s(config_text)
        self._memory.counts_memory = parse_config.counts_memory(config_text)
        self._memory.now_s = shown_s
        self._counts_gpus = parse_config.counts_gpus(config_text)
        records = _job_records(questions, job_texts)
        suspects = self._memory.live_but_missing(listed)
        if questions == [_SHOW_ALL_JOBS]:
            suspects |= set(map(parse_jobs.live_job_in, records.values()))
            suspects -= _ids(listed) | {""}
        listed = self._whole(listed, suspects)
        self._learn(listed, unknown, questions, records)
        complain = self._unread_records.append
        partitions = parse_nodes.partitions(partition_text, complain)
        topologies = {"": parse_nodes.locations(topology_text, complain=complain)}
        for name in {partition.topology for partition in partitions} - {""}:
            # One scontrol shows the same topology again, whichever it is asked for.
            (named_text,) = self._show([f"show topology {name}"])
            topologies[name] = parse_nodes.locations(named_text, name, complain)
        nodes = parse_nodes.nodes(node_text, partitions, topologies, complain)
        seen = Observation(
            at_s=at_s,
            jobs=self._memory.jobs(listed),
            nodes=nodes,
            partitions=partitions,
            reservations=parse_nodes.reservations(reservation_text, nodes, complain),
        )
        return seen, shown_s

    def _listed(self) -> tuple[JobFields, ...]:
        """Every job that squeue lists."""
        spoken = self._release_of_squeue()
        answer, separator = self._ask_squeue(job_rows.columns(spoken), *job_rows.ARGUMENTS)
        return self._rows.read(job_rows.rows(self._squeues(answer), separator, spoken))

    def _ask_squeue(self, columns: Iterable[str], *options: str) -> tuple[Answer, str]:
        """Return squeue's answer, and the separator of its fields."""
        separator = job_rows.new_separator()
        printed = job_rows.environment(columns, separator)
        squeue = [self._commands.squeue, *options]
        return self._run(tally.SQUEUE, squeue, environment=printed), separator

    def _learn(
        self,
        listed: Sequence[JobFields],
        unknown: Sequence[JobFields],
        questions: Sequence[str],
        records: Mapping[int, str],
    ) -> None:
        """Store the listed jobs, and scontrol's records of those that were unknown.

        Users can write lines that look like other jobs' records. A job that thus has several
        records in the answer about all jobs is asked about separately.
        """
        asked = {job.raw_id for job in unknown}
        if questions == [_SHOW_ALL_JOBS]:
            ambiguous = [job for job in unknown if job.raw_id not in records]
            ambiguous = ambiguous[:MOST_AMBIGUOUS_ONE_BY_ONE]
            singly = [f"show job {job.key}" for job in ambiguous]
            answers = self._show(singly) if singly else []
            records = {**records, **_job_records(singly, answers)}
            asked = {job.raw_id for job in ambiguous}
        self._memory.learn(listed, records, self._details, asked)

    def _release_of_squeue(self) -> Release:
        """The release of squeue, which decides its columns; slurmctld's may differ."""
        path = shutil.which(self._commands.squeue, path=self._environment.get("PATH"))
        try:
            found = Path(path).stat() if path else None
        except OSError:
            found = None
        # Changes when squeue is replaced, so that its version is asked only then.
        file = (found.st_dev, found.st_ino, found.st_mtime_ns) if found else None
        if file is None or file != self._squeue_file:
            answer = self._run(tally.SQUEUE, [self._commands.squeue, "--version"], requests=0)
            self._release = release.of(release.version_in(answer.stdout))
            self._squeue_file = file
        return self._release

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """Return all runs of these jobs in accounting, oldest first, and rows without a start for
        jobs that ended while pending.

        Raises ``SlurmUnreachableError`` if the cluster has accounting but slurmdbd does not answer.
        """
        found = [
            run
            for some in in_parts(sorted(keys), MOST_KEYS_A_COMMAND)
            for run in parse_accounting.runs(
                self._ask_accounting(parse_accounting.arguments(some, since_s)),
                frozenset(some),
                self._unread_accounting.warn,
            )
        ]
        return sorted(
            found, key=lambda row: (row.start_s or row.end_s or 0.0, row.submit_s or 0.0, row.key)
        )

    def dependency(self, key: str) -> str:
        """The dependency of a pending job as squeue writes it: ``afterok:12(unfulfilled)``."""
        of_job = ("--noheader", "--array", f"--jobs={key}")
        answer, separator = self._ask_squeue(["Dependency"], *of_job)
        said = next(job_rows.split(self._squeues(answer), separator), [""])
        return notation.present(said[0].strip())

    def exit_codes(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return the exit codes of ended jobs as Slurm writes them, by job.

        A user can fake them in a job's name: they decide about nothing but that job's restarts.
        """
        answers = self._show([f"show job {key}" for key in keys])
        found = zip(keys, map(_EXIT_CODE.search, answers), strict=True)
        return {key: code[1] for key, code in found if code}

    def limits(self, jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        """Return by job key the limits that each of these jobs shares with others."""
        if self._limits is None:
            try:
                self._limits = parse_limits.limits(*self._show(_LIMIT_QUESTIONS))
            except SlurmAnswerError as error:
                self._unread_limits.warn(error)
                return dict.fromkeys((job.key for job in jobs), (_UNKNOWN_LIMIT,))
            self._unread_limits.clear()
        found = self._limits
        return {job.key: tuple(found.of(job)) for job in jobs}

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Send all writes, in order, through one scontrol; return those that Slurm refused."""
        if not writes:
            return ()
        self._memory.ask_again(
            one.key for one in writes if isinstance(one, Update) and one.excluded is not None
        )
        failures = self._send(writes)
        denied = [failure for failure in failures if process.is_denial(failure.message)]
        # Operators, who may change all jobs, may not change nodes.
        if len(denied) == len(writes) and not all(isinstance(one, SetNode) for one in writes):
            raise process.complaint("scontrol update", denied[0].message)
        return failures

    def _send(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Send all writes to one scontrol; return those that it complained about."""
        marker = write_lines.new_marker()
        script = write_lines.script(writes, marker, self._clock.ahead_s)
        scontrol = [self._commands.scontrol]
        try:
            answer = self._run(tally.UPDATE, scontrol, script, requests=len(writes), changes=True)
        except process.CutOffError as error:
            cut_off: TiresiasError = error
            complaints = error.complaints
        else:
            complaints = answer.stderr
            *_, last_words = re.split(rf"{marker}\d+\n", complaints)
            cut_off = process.complaint("scontrol", last_words)
        answered, failures = write_lines.answers(writes, complaints, marker)
        for number, failure in enumerate(failures):
            why = process.complaint("scontrol update", failure.message)
            if isinstance(why, SlurmUnreachableError):
                answered = next(at for at, one in enumerate(writes) if one is failure.write)
                raise self._failed(UnfinishedWriteError(why, answered, failures[:number]))
        if answered < len(writes):
            raise self._failed(UnfinishedWriteError(cut_off, answered, failures))
        return failures

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        """Send a signal to every process of these running jobs; return the refusals."""
        if not _SIGNAL.fullmatch(signal):
            raise ValueError(f"{signal!r} is not a signal")
        refused: dict[str, str] = {}
        # scancel knows only a few signals by name, but all by number.
        number = getattr(signals, f"SIG{signal.removeprefix('SIG')}", None)
        named = signal if number is None else f"{number:d}"
        for some in in_parts(keys, MOST_KEYS_A_COMMAND):
            answer = self._scancel(some, f"--signal={named}", "--full")
            error = process.complaint("scancel", answer.stderr)
            if isinstance(error, SlurmUnreachableError):
                raise self._failed(error)
            refused |= _refused_signals(answer, some)
            if number in NOT_PASSED_ON:
                self._scancel(some, f"--signal={named}")
        return refused

    def _scancel(self, keys: Sequence[str], *options: str) -> Answer:
        """Signal the running ones of these jobs; some twice, if scancel takes too long."""
        command = [self._commands.scancel, *options, "--state=RUNNING", *keys]
        run = partial(self._run, tally.SCANCEL, command, requests=len(keys), changes=True)
        for timeout_s in SCANCEL_LIMITS_S:
            with suppress(process.CutOffError):
                return run(timeout_s=timeout_s)
        return run()

    def _whole(
        self, listed: tuple[JobFields, ...], suspects: Collection[str]
    ) -> tuple[JobFields, ...]:
        """Return the jobs after checking that none is missing; raise ``SlurmAnswerError`` if so.

        A list that was cut off between two jobs looks complete. But slurmctld shows a job for
        MinJobAge after its end, so jobs that were alive before and are not listed now are
        ``suspects`` to ask about. A job submitted between two answers is in the next list.
        """
        chosen = random.sample(sorted(suspects), min(len(suspects), MOST_MISSING_CHECKED))
        if not chosen:
            return listed
        answers = self._show([f"show job {key}" for key in chosen])
        missing = set(filter(None, map(parse_jobs.live_job_in, answers)))
        missing -= _ids(listed)
        if not missing:
            return listed
        listed = self._listed()
        if len(lacks := missing - _ids(listed)) > self._rows.passed_over:
            raise SlurmAnswerError(
                f"squeue's list of jobs lacks job {min(lacks)}, which slurmctld knows",
                "check whether something stops or limits its processes",
            )
        return listed

    def _show(self, questions: Sequence[str]) -> Sequence[str]:
        """Return the answer to each question, from one scontrol.

        After each question scontrol is told to expand a hostlist of two random names. Only its
        answer has each name on a separate line, whether or not it echoes the question, so the
        output can be split there.
        """
        token = secrets.token_hex(8)
        end = f"end{token}a\nend{token}b\n"
        spell_out = f"show hostnames end{token}a,end{token}b"
        script = "".join(f"{question}\n{spell_out}\n" for question in questions)
        scontrol = [self._commands.scontrol, "--all", "--oneliner", "--details"]
        answer = self._run(tally.SHOW, scontrol, script, requests=len(questions))
        *sections, _ = answer.stdout.split(end)
        complaints = [
            line
            for line in answer.stderr.split("\n")
            if line.strip() and not _NOT_THERE.fullmatch(line.strip())
        ]
        if complaints:
            raise self._failed(process.complaint("scontrol show", "\n".join(complaints)))
        if len(sections) != len(questions):
            raise SlurmAnswerError(
                f"scontrol answered {len(sections)} of {len(questions)} questions",
                "check whether something stops or limits its processes",
            )
        return [_PROMPT.sub("", section) for section in sections]

    def _ask_accounting(self, arguments: Sequence[str]) -> str:
        """Return sacct's output; "" if the cluster has no accounting.

        sacct asks slurmdbd, so this needs no slurmctld and shares no state with other queries.
        """
        sacct = [self._commands.sacct, *arguments]
        with self._tally.counting(tally.SACCT):
            answer = process.run(
                sacct, stdin="", timeout_s=self._commands.timeout_s, environment=self._environment
            )
        if process.NO_ACCOUNTING in answer.stderr:
            return ""
        if _is_refusal(answer):
            raise process.complaint(sacct[0], answer.stderr)
        return answer.stdout

    def _squeues(self, answer: Answer) -> str:
        """Return the output of squeue; raise the error that it reports."""
        if _is_refusal(answer):
            raise self._failed(process.complaint(self._commands.squeue, answer.stderr))
        return answer.stdout

    def _run(
        self,
        what: str,
        arguments: Sequence[str],
        stdin: str = "",
        *,
        requests: int = 1,
        changes: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
        timeout_s: float = math.inf,
    ) -> Answer:
        """Run a command after checking that slurmctld is up. ``what`` and ``requests`` are for the
        tally; ``changes`` ends the command with the lease; ``environment`` is added to its own;
        ``timeout_s`` can only shorten the usual time limit."""
        self._expect_it_up()
        until_s = self._lease.check() if changes else math.inf
        with self._tally.counting(what, requests):
            answer = process.run(
                arguments,
                stdin=stdin,
                timeout_s=min(timeout_s, self._commands.timeout_s),
                environment={**self._environment, **environment},
                until_s=until_s,
                meanwhile=self._lease.renew,
            )
        self._answered_s = time.monotonic()
        return answer

    def _expect_it_up(self) -> None:
        """Ping slurmctld, unless it has just answered.

        While it is down squeue waits nine seconds, and scontrol nine seconds per input line;
        ``scontrol ping`` returns in three milliseconds.
        """
        if time.monotonic() - self._answered_s > PING_AFTER_S:
            self._ping()
        self._answered_s = _NEVER
        self._lease.renew()

    def _ping(self, timeout_s: float = PING_TIMEOUT_S) -> Answer:
        with self._tally.counting(tally.PING):
            answer = process.run(
                [self._commands.scontrol, "ping"],
                stdin="",
                timeout_s=min(timeout_s, self._commands.timeout_s),
                environment=self._environment,
            )
        if " UP" not in answer.stdout:
            error = process.complaint("scontrol ping", answer.stderr)
            if isinstance(error, SlurmUnreachableError):
                raise error
            said = process.last_words(answer.stderr) or answer.stdout.partition("\n")[0]
            raise SlurmUnreachableError(
                f"slurmctld is down: {said or 'scontrol ping says nothing'}",
                "start slurmctld, or check whether this host reaches it",
            )
        return answer

    def _failed(self, error: TiresiasError) -> TiresiasError:
        """Remember to ping first the next time."""
        self._answered_s = _NEVER
        return error


def _slurmdbd_conf_hides_jobs(config: str) -> bool:
    """Whether the slurmdbd.conf beside slurm.conf hides jobs; False if it cannot be read."""
    slurm_conf = parse_config.settings(config).get("SLURM_CONF", "")
    try:
        return parse_config.hides_jobs(Path(slurm_conf).with_name("slurmdbd.conf").read_text())
    except (OSError, ValueError) as error:
        log.info(
            "slurmdbd.conf cannot be read here, so PrivateData of slurm.conf is used: %s", error
        )
        return False


def _refused_signals(answer: Answer, keys: Sequence[str]) -> Mapping[str, str]:
    """Return scancel's message by refused job, except for ended ones; all jobs if it names none."""
    complaints = answer.stderr.strip()
    if answer.status != 0 and not complaints:
        complaints = f"scancel ended with status {answer.status}"
    refused: dict[str, str] = {}
    for line in filter(None, complaints.split("\n")):
        words = line.strip().removeprefix("scancel: error: ")
        named = _SIGNALLED.match(words)
        if not says_that_job_ended(words):
            refused |= dict.fromkeys(keys if named is None else [named[1]], words)
    return {key: words for key, words in refused.items() if key in keys}


def _is_refusal(answer: Answer) -> bool:
    return answer.status != 0 or "error:" in answer.stderr


def _ids(jobs: Sequence[JobFields]) -> set[str]:
    return {str(job.raw_id) for job in jobs}


def _job_questions(unknown: Sequence[JobFields], all_jobs: int) -> list[str]:
    """Return the scontrol questions about these jobs: one per job, or one about all jobs."""
    if len(unknown) > max(MOST_JOBS_ONE_BY_ONE, all_jobs // 30):
        return [_SHOW_ALL_JOBS]
    return [f"show job {job.key}" for job in unknown]


def _job_records(questions: Sequence[str], answers: Sequence[str]) -> Mapping[int, str]:
    """Return the records in the answers, by raw job id."""
    if questions == [_SHOW_ALL_JOBS]:
        return job_details.records_of_all(answers[0])
    found: dict[int, str] = {}
    for answer in answers:
        found |= job_details.record_of_one(answer)
    return found


def in_parts(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """The items in their order, ``most`` at a time."""
    for at in range(0, len(items), most):
        yield items[at : at + most]
