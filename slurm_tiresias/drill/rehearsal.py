"""Carry out a drill: submit the job, preempt it as the controller does, watch it, and clean up."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.drill.journal import MOST_LAST_LINES, RunJournal
from slurm_tiresias.drill.observed import MOMENTS, Drill, DrillRun, Survivor, Trial, TrialKind
from slurm_tiresias.drill.scale import in_steps
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job.channel import FILE_VARIABLE
from slurm_tiresias.job.record import RECORD_BYTES
from slurm_tiresias.job_hints import checkpoint_of
from slurm_tiresias.progress.saving import asked, is_asked
from slurm_tiresias.settings.preemption import Checkpoint, PreemptionConfig
from slurm_tiresias.slurm.user_jobs import Step, UserCommands, UserJob

ELSEWHERE_S = 20.0
"""How long the job may wait for a start on other nodes."""

RESTART_IN_S = 2
"""Like the controller: the node can refuse an immediate start (controller/acting/requeue.py)."""

LOOK_S = 0.3
"""How often Slurm is asked about the job."""
LISTEN_S = 0.1
LEAST_S = 1.0
SETTLE_S = 3.0
"""How long a run continues after it has shown where it began: at least, and until it makes
steps."""
SILENT_S = 20.0
"""The wait for the first steps of a run if the previous run reported none."""
STEPS_BEFORE = 3
"""How many steps a run makes before it is preempted in the middle of one."""
WATCHER_S = 20.0
MOST_EARLIER = 500
"""How many processes of earlier runs are looked for: they are passed on a command line."""
FINISHES_S = 3.0
LEAVES_S = 60.0
"""How long beyond KillWait a job may take to leave its nodes, with their epilogs."""

LAST_BYTES = 4096
END_BYTES = 64

FOLDER = ".tiresias-drill-"


class CannotRehearseError(TiresiasError):
    """The job, or a part of the drill, cannot be tested."""

    exit_code = 17


class StoppedError(BaseException):
    """A signal has stopped the drill. Not an ``Exception``, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Stopping:
    """Raises ``StoppedError`` at SIGINT, SIGTERM and SIGHUP, or at the end of a block that must not
    be interrupted.

    Blocking the signals would not suffice: the threads that read srun's output would still receive
    them.
    """

    def __init__(self) -> None:
        self._waits = 0
        self._number = 0

    def stop(self, number: int, _frame: object) -> None:
        """Handle a signal; only the first counts."""
        if self._number:
            return
        self._number = number
        if not self._waits:
            raise StoppedError(number)

    @contextmanager
    def later(self) -> Iterator[None]:
        """Delay signals until the block has ended."""
        stopped_before = self._number
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
        if self._number and not stopped_before:
            raise StoppedError(self._number)


_stopping = _Stopping()


@contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise ``StoppedError``, so that the drill cleans up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _stopping.stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What the drill tests. ``options`` are sbatch's, ``script`` the script with its arguments."""

    options: tuple[str, ...]
    script: tuple[str, ...]
    kinds: tuple[TrialKind, ...] = tuple(TrialKind)
    minutes: int = 15
    """The time limit of each run."""
    start_wait_s: float = 600.0
    step_wait_s: float = 60.0
    """How long to wait for the first steps of a run; after that it is preempted wherever it is."""


Say = Callable[[str], None]


def rehearse(plan: DrillPlan, site: PreemptionConfig, say: Say) -> Drill:
    """Carry out a drill on this machine's Slurm, with the signals and graces of the ``site``.

    Raises ``CannotRehearseError`` if the job does not start, and ``StoppedError`` inside
    ``stoppable``.
    """
    return Rehearsal(UserCommands(), plan, site, say).run()


class Rehearsal:
    """One drill. ``run`` cleans up however it ends."""

    def __init__(
        self, slurm: UserCommands, plan: DrillPlan, site: PreemptionConfig, say: Say
    ) -> None:
        self._slurm = slurm
        self._plan = plan
        self._site = site
        self._say = say
        self._cluster, self._kill_wait_s = slurm.settings()
        self._checkpoint = Checkpoint("", 0.0)
        self._folder = Path()
        self._job_id = ""
        self._work_dir = Path.cwd()
        self._seen: tuple[float, UserJob] | None = None
        """The job as Slurm has last shown it, and when."""
        self._dismiss_guard: Callable[[], None] = lambda: None
        self._there_before: frozenset[str] = frozenset()
        self._excluded = ""
        """The nodes that the user has excluded."""
        self._journal = RunJournal(0)
        """The present run."""
        self._step: Step | None = None
        """Its watchers; None if it ended before it could be watched."""
        self._steps: list[Step] = []
        self._runs: list[DrillRun] = []
        """The runs before it."""
        self._trials: list[tuple[TrialKind, int, int, str]] = []
        """Each trial, with its first run, its number of preemptions, and what went wrong."""
        self._survivors: dict[tuple[str, int], Survivor] = {}
        self._looked: set[tuple[int, str]] = set()
        """The runs, with their nodes, whose processes were looked for afterwards."""
        self._moving: set[str] = set()
        """The counters that have moved in any run."""
        self._shows = True
        """Whether the last run has shown steps."""
        self._marked = 0
        """The position of the end of the mark in the output; 0 for no mark."""
        self._logs: dict[str, tuple[int, str]] = {}
        self._lines: tuple[str, ...] = ()

    def run(self) -> Drill:
        """Carry out all trials; raise ``CannotRehearseError`` if the job cannot be tested."""
        unwatched: list[str] = []
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=Path.cwd()))
        except OSError as error:
            raise CannotRehearseError(
                f"No folder can be made in {Path.cwd()}: {error.strerror}",
                "Start the drill in your own folder that the nodes see too",
            ) from None
        try:
            self._submit()
            self._carry_out()
            preempted = {(run.number, node) for run in self._runs for node in run.nodes}
            self._say("looks for what stayed behind")
            self._cancel()
            unwatched = self._look_for_survivors(preempted)
        finally:
            left = self._clean_up()
        runs, unit = in_steps(self._runs)
        return Drill(
            self._job_id,
            self._kill_wait_s,
            self._checkpoint.signal,
            self._checkpoint.grace_s,
            tuple(
                Trial(
                    kind,
                    tuple(runs[first : first + preempted]),
                    runs[first + preempted] if preempted else None,
                    tuple(runs[:first]),
                    tuple(
                        one
                        for one in self._survivors.values()
                        if first <= one.run < first + preempted
                    ),
                    trouble,
                )
                for kind, first, preempted, trouble in self._trials
            ),
            tuple(unwatched),
            self._lines,
            left,
            unit,
        )

    # Before and after

    def _submit(self) -> None:
        progress, output = self._folder / "progress", self._folder / "output"
        progress.write_bytes(bytes(RECORD_BYTES))
        options = [*self._plan.options, f"--output={output}", f"--error={output}", "--requeue"]
        # A signal before its id is known would leave the job behind.
        with _stopping.later():
            self._there_before = _names_in(Path.cwd())
            self._job_id = self._slurm.submit(
                [*options, f"--time={self._plan.minutes}"],
                self._plan.script,
                {FILE_VARIABLE: str(progress)},
            )
            self._dismiss_guard = self._slurm.guard(self._job_id, str(self._folder))
            job = self._now()
            if Path(job.work_dir) != self._work_dir:
                self._work_dir = Path(job.work_dir)
                self._there_before = _names_in(self._work_dir)
            self._checkpoint = checkpoint_of(job.admin_comment, job.comment, self._site)
            self._excluded = self._slurm.excluded(self._job_id)
        self._say(f"job {self._job_id} submitted")

    def _clean_up(self) -> tuple[str, ...]:
        """Cancel the job and wait until it has left; remove the folder, and nothing else.

        Returns the new files with the job's id in their names, which may be of another job.
        """
        with _stopping.later():
            try:
                if self._job_id:
                    self._cancel()
                    # Slurm may have left processes behind that no later run has looked for.
                    processes = [(run.number, one) for run in self._runs for one in run.processes]
                    orphaned = {(n, one.node) for n, one in processes if one.orphaned_s is not None}
                    self._look_for_survivors(orphaned)
            finally:
                for step in self._steps:
                    step.close()
                self._dismiss_guard()
                self._lines = self._lines or _last_lines(self._folder / "output")
                shutil.rmtree(self._folder, ignore_errors=True)
        new = _names_in(self._work_dir) - self._there_before
        return tuple(sorted(name for name in new if self._job_id and _has_id(name, self._job_id)))

    def _cancel(self) -> None:
        """Cancel the job, and wait until it has left its nodes. Its last run ends before that."""
        run = self._journal.run()
        self._runs.append(run)
        self._journal = RunJournal(len(self._runs))
        with suppress(TiresiasError):
            if self._step is None and self._now().state == "RUNNING":
                self._step = self._watch(self._now())
        # Slurm records a job as failed if its processes are killed first.
        self._slurm.cancel(self._job_id)
        if self._step is not None:
            # Including processes that Slurm would leave behind, once the watchers run.
            self._step.order("finish")
            self._wait(lambda: self._is_over, FINISHES_S if run.nodes else WATCHER_S)
        with suppress(TiresiasError):
            self._wait(lambda: self._now().has_ended, self._kill_wait_s + LEAVES_S)

    def _look_for_survivors(self, ran_on: set[tuple[int, str]]) -> list[str]:
        """Look for processes of runs on their nodes, unless a later run has done so.

        Returns the nodes that could not be looked at.
        """
        nodes = {node for _, node in ran_on - self._looked}
        return [node for node in sorted(nodes) if not self._look_at(node)]

    def _look_at(self, node: str) -> bool:
        assert self._seen is not None
        job = self._seen[1]
        step = self._slurm.look_at(node, job, {**self._told(job), "only_survivors": True})
        self._steps.append(step)
        journal = RunJournal(len(self._runs))
        give_up_s = time.monotonic() + 2 * WATCHER_S
        while not step.is_over and time.monotonic() < give_up_s:
            if (line := step.line(LISTEN_S)) is not None:
                journal.add(line, time.time())
        self._note_survivors(journal)
        if journal.has_ended:
            self._looked |= {(run.number, node) for run in self._runs}
        return journal.has_ended

    def _note_survivors(self, journal: RunJournal) -> None:
        for one in journal.survivors:
            self._survivors.setdefault((one.node, one.pid), one)

    # The trials

    def _carry_out(self) -> None:
        """Carry out the trials in turn; the run that follows one trial is preempted by the next."""
        kinds = self._plan.kinds
        moves_after = TrialKind.STEP if TrialKind.STEP in kinds else kinds[0]
        self._start()
        for kind in kinds:
            first = len(self._runs)
            self._say(f"preempts it {MOMENTS[kind]}")
            trouble = ""
            for number in range(2 if kind is TrialKind.TWICE else 1):
                if kind is TrialKind.START_UP or number > 0:
                    self._listen(lambda: self._journal.has_processes, WATCHER_S)
                else:
                    self._wait_for_steps()
                run = self._journal.run()
                if run.ended:
                    code = f"{run.ended} (exit code {run.exit_code})"
                    trouble = f"the job ended by itself as {code} before it"
                    break
                self._preempt(again=kind is TrialKind.SAVE)
                self._restart(elsewhere=kind is moves_after and number == 0)
            else:
                self._wait_for_steps()
            self._trials.append((kind, first, len(self._runs) - first, trouble))
            self._lines = tuple(self._journal.last_lines)
            if self._journal.run().ended:
                break

    def _restart(self, *, elsewhere: bool) -> None:
        """Start the job again, elsewhere if other nodes take it soon."""
        nodes = self._runs[-1].nodes if elsewhere else ()
        excluded = ",".join([self._excluded, *nodes]).strip(",")
        options = (*self._plan.options, f"--time={self._plan.minutes}")
        if nodes and self._slurm.fits_without(options, self._plan.script, excluded):
            self._slurm.start_soon(self._job_id, RESTART_IN_S, excluded)
            if self._wait(lambda: self._now().state != "PENDING", ELSEWHERE_S):
                self._start()
                return
        self._slurm.start_soon(self._job_id, RESTART_IN_S, self._excluded)
        self._start()

    def _start(self) -> None:
        """Wait until the job runs, and watch it."""
        number = len(self._runs)
        self._journal = journal = RunJournal(number, self._job_id, str(self._folder))
        self._step = None
        wait_s, notice_s = self._plan.start_wait_s, 5.0
        until_s = time.monotonic() + wait_s
        while not self._wait(self._has_begun, min(notice_s, until_s - time.monotonic())):
            reason = self._now().reason
            if time.monotonic() > until_s:
                raise CannotRehearseError(
                    f"Job {self._job_id} did not start within {wait_s / 60:g} minutes ({reason})",
                    "Ask for less, or for another partition; --wait-min waits longer",
                )
            self._say(f"waits to start ({reason})")
            notice_s = 60.0
        job = self._now()
        if self._note_end():
            return
        if job.restarts != number:
            raise CannotRehearseError(
                f"Job {self._job_id} was requeued by another user meanwhile", "Try again"
            )
        self._step = step = self._watch(job)
        self._listen(lambda: len(journal.nodes_up) >= len(job.nodes), WATCHER_S)
        if not journal.nodes_up and not journal.run().ended:
            raise CannotRehearseError(
                f"No step to watch the job could be started: {step.complaints()[:200]}",
                "See whether srun works on its nodes: srun --overlap --jobid=ID python3 -V",
            )
        self._looked |= {(run.number, node) for run in self._runs for node in journal.nodes_up}
        self._note_survivors(journal)

    def _watch(self, job: UserJob) -> Step:
        self._steps.append(self._slurm.step(self._job_id, len(job.nodes), self._told(job)))
        return self._steps[-1]

    def _told(self, job: UserJob) -> Mapping[str, object]:
        """Return the arguments of the watchers."""
        earlier = [
            {"run": run.number, "node": one.node, "pid": one.pid, "start": one.start}
            for run in self._runs
            for one in run.processes
        ]
        return {
            "job": self._job_id,
            "cluster": self._cluster,
            "output": str(self._folder / "output"),
            "offset": self._marked,
            "mark": self._mark if self._marked else "",
            "logs": self._logs,
            "root": job.work_dir,
            "since_s": time.time() - 2.0,
            "folder": str(self._folder),
            "earlier": earlier[-MOST_EARLIER:],
            "only_survivors": False,
        }

    @property
    def _mark(self) -> str:
        return f"\n--- drill: start {len(self._runs) + 1} ---\n"

    def _wait_for_steps(self) -> None:
        """Wait until the run makes steps; if it reports none, wait for the time allowed."""
        journal = self._journal

        def shows() -> bool:
            # One number suffices if it moved in an earlier run.
            return bool(journal.moves or journal.lines_counted & self._moving)

        wait_s = self._plan.step_wait_s if self._shows else min(SILENT_S, self._plan.step_wait_s)
        # A job that has shown no steps may still say where it resumes.
        self._listen(lambda: shows() or (journal.has_resumed and not self._shows), wait_s)
        self._shows = shows()
        settled_s = time.monotonic() + LEAST_S
        self._listen(
            lambda: journal.moves >= STEPS_BEFORE and time.monotonic() > settled_s, SETTLE_S
        )
        # Right after a save, a program that saves nothing on its signal would lose nothing.
        self._listen(lambda: journal.would_lose_steps, SETTLE_S)

    def _preempt(self, *, again: bool) -> None:
        """Preempt the job as the controller does, and wait until it is pending again."""
        journal = self._journal
        now_s, progress = journal.node_s(time.time()), journal.progress
        # Without the site's plugin the controller would not know that the run saves on request.
        asks = journal.by_plugin and is_asked(
            self._checkpoint, len(self._runs), progress, self._site, now_s
        )
        checkpoint = asked(self._site) if asks else self._checkpoint
        name = checkpoint.signal
        number = signal.Signals[f"SIG{name}"] if name else signal.SIGTERM
        if name:
            journal.signalled(number, time.time(), asked=asks)
            self._slurm.signal(self._job_id, name)
        if again and self._step is not None:
            self._step.order(f"again {number:d}")
        if name:
            self._wait(lambda: self._is_over or journal.has_answered, checkpoint.grace_s)
        journal.requeued(time.time())
        self._slurm.requeue(self._job_id)
        if not self._wait(self._is_requeued, self._kill_wait_s + LEAVES_S):
            raise CannotRehearseError(
                f"Job {self._job_id} has not left its nodes after its requeue",
                "Check its nodes: an epilog may hang",
            )
        self._wait(lambda: self._is_over, self._kill_wait_s + LEAVES_S)
        self._prepare_next()

    def _is_requeued(self) -> bool:
        """Whether the job is pending again; it is restarted if it exited before its requeue."""
        if self._note_end():
            self._slurm.requeue(self._job_id, ended=True)
            self._seen = None
        return self._now().state == "PENDING"

    def _prepare_next(self) -> None:
        """Add a line to the job's output while the job waits; its next start may empty it.

        Also note the ends of its own logs, and remove what it has reported: each run reports anew,
        as with the plugin.
        """
        journal = self._journal
        self._runs.append(journal.run())
        self._moving |= journal.moving
        for path in [*self._logs, *journal.own_logs]:
            with suppress(OSError), Path(path).open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - END_BYTES))
                self._logs[path] = size, log.read().decode("latin-1")
        self._marked = 0
        with suppress(OSError):
            (self._folder / "progress").write_bytes(bytes(RECORD_BYTES))
        with suppress(OSError), (self._folder / "output").open("ab") as file:
            file.write(self._mark.encode())
            self._marked = file.tell()

    # Waiting

    @property
    def _is_over(self) -> bool:
        return self._step is None or self._step.is_over

    def _now(self) -> UserJob:
        """Return the job as Slurm shows it, or has shown it a moment ago."""
        if self._seen is None or time.monotonic() > self._seen[0] + LOOK_S:
            self._seen = time.monotonic(), self._slurm.job(self._job_id)
        return self._seen[1]

    def _has_begun(self) -> bool:
        job = self._now()
        return job.state == "RUNNING" or job.has_ended

    def _note_end(self) -> bool:
        """Whether the job has ended by itself; its end is recorded."""
        job = self._now()
        if job.has_ended and not self._journal.run().ended:
            self._journal.ended_itself(job.state, job.exit_code)
        return job.has_ended

    def _listen(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Wait for the condition, or until the run has ended."""
        self._wait(lambda: until() or (self._is_over and self._note_end()), timeout_s)

    def _wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Read the watchers' lines until the condition holds; return whether it did in time."""
        give_up_s = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > give_up_s:
                return False
            if self._step is None or self._step.is_over:
                time.sleep(LISTEN_S)
            elif (line := self._step.line(LISTEN_S)) is not None:
                self._journal.add(line, time.time())
            elif self._step.is_over:
                self._journal.over(time.time())
        return True


def _last_lines(path: Path) -> tuple[str, ...]:
    """Return the last lines of the job's output, for a job that no watcher has seen."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-MOST_LAST_LINES:]


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _has_id(name: str, job_id: str) -> bool:
    """Whether a name contains the job's id as a complete number."""
    before, found, behind = name.partition(job_id)
    return bool(found) and not before[-1:].isdigit() and not behind[:1].isdigit()
