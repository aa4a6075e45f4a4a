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
from slurm_tiresias.drill.observed import Drill, Kind, Run, Survivor, Trial
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job.channel import FILE_VARIABLE
from slurm_tiresias.job.record import RECORD_BYTES
from slurm_tiresias.job_hints import Checkpoint, checkpoint_of
from slurm_tiresias.progress.saving import asked, is_asked
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.slurm.user_jobs import Step, UserCommands, UserJob, UserSettings, UserSlurm

ELSEWHERE_S = 20.0
"""How long the job may wait for a start on other nodes."""

RESTART_IN_S = 2
"""Like the controller: the node can refuse an immediate start (controller/acting/requeue.py)."""

LOOK_S = 0.3
LISTEN_S = 0.1
LEAST_S = 1.0
SETTLE_S = 3.0
SILENT_S = 20.0
"""The wait for the first steps of a run if the previous run reported none."""
"""How long a run continues after it has shown where it began: at least, and until it makes
steps."""
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
        if self._number and not stopped_before and not self._waits:
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
class Plan:
    """What the drill tests. ``options`` are sbatch's, ``script`` the script with its arguments."""

    options: tuple[str, ...]
    script: tuple[str, ...]
    kinds: tuple[Kind, ...] = tuple(Kind)
    minutes: int = 15
    """The time limit of each run."""
    start_wait_s: float = 600.0
    step_wait_s: float = 60.0
    """How long to wait for the first steps of a run; after that it is preempted wherever it is."""


Say = Callable[[str], None]


def rehearse(plan: Plan, site: PreemptionConfig, say: Say) -> Drill:
    """Carry out a drill on this machine's Slurm, with the signals and graces of the ``site``.

    Raises ``CannotRehearseError`` if the job does not start, and ``StoppedError`` inside
    ``stoppable``.
    """
    return Rehearsal(UserCommands(), plan, site, say).run()


@dataclass(frozen=True)
class _Watched:
    """A run under way, with the job step that watches it."""

    journal: RunJournal
    step: Step


@dataclass
class _Begun:
    """A trial under way: the numbers of the runs that it has preempted."""

    kind: Kind
    first_run: int
    runs: int = 0
    trouble: str = ""


class Rehearsal:
    """One drill. ``run`` cleans up however it ends."""

    def __init__(self, slurm: UserSlurm, plan: Plan, site: PreemptionConfig, say: Say) -> None:
        self._slurm = slurm
        self._plan = plan
        self._site = site
        self._say = say
        self._settings = UserSettings("", 0.0)
        self._checkpoint = Checkpoint("", 0.0)
        self._folder = Path()
        self._job_id = ""
        self._job: UserJob | None = None
        self._runs: list[Run] = []
        self._survivors: list[Survivor] = []
        self._looked: set[tuple[int, str]] = set()
        self._there_before: frozenset[str] = frozenset()
        self._left: tuple[str, ...] = ()
        self._dismiss_guard: Callable[[], None] = lambda: None
        self._excluded = ""
        """The nodes that the user has excluded."""
        self._moving: set[str] = set()
        """The counters that have moved in any run."""
        self._logs: dict[str, tuple[int, str]] = {}
        self._lines: tuple[str, ...] = ()
        self._steps: list[Step] = []
        self._watched: _Watched | None = None
        self._last_run = Run(0)
        self._tells = True

    def run(self) -> Drill:
        """Carry out all trials; raise ``CannotRehearseError`` if the job cannot be tested."""
        self._settings = self._slurm.settings()
        self._make_folder()
        begun: list[_Begun] = []
        try:
            self._submit()
            self._carry_out(begun)
            unwatched = self._look_for_survivors()
        finally:
            self._clean_up()
        return Drill(
            self._job_id,
            self._settings.kill_wait_s,
            self._checkpoint.signal,
            self._checkpoint.grace_s,
            tuple(map(self._trial, begun)),
            unwatched,
            self._lines,
            self._left,
        )

    # Before and after

    def _make_folder(self) -> None:
        """Make the drill's folder where the job is submitted, since the nodes see that folder
        too."""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=Path.cwd()))
        except OSError as error:
            raise CannotRehearseError(
                f"No folder can be made in {Path.cwd()}: {error.strerror}",
                "Start the drill in your own folder that the nodes see too",
            ) from None
        (self._folder / "progress").write_bytes(bytes(RECORD_BYTES))

    def _submit(self) -> None:
        output = self._folder / "output"
        options = [
            *self._plan.options,
            *(f"--output={output}", f"--error={output}", "--requeue"),
            f"--time={self._plan.minutes}",
        ]
        environment = {FILE_VARIABLE: str(self._folder / "progress")}
        # A signal before its id is known would leave the job behind.
        with _stopping.later():
            self._there_before = _names_in(Path.cwd())
            self._job_id = self._slurm.submit(options, self._plan.script, environment)
            self._dismiss_guard = self._slurm.guard(self._job_id, str(self._folder))
            self._job = self._slurm.job(self._job_id)
            if Path(self._job.work_dir) != Path.cwd():
                self._there_before = _names_in(Path(self._job.work_dir))
            comments = self._job.admin_comment, self._job.comment
            self._checkpoint = checkpoint_of(*comments, self._site)
            self._excluded = self._slurm.excluded(self._job_id)
        self._say(f"job {self._job_id} submitted")

    def _clean_up(self) -> None:
        """Cancel the job and wait until it has left; remove the folder, and nothing else.

        A file with the job's id in its name may be of another job.
        """
        with _stopping.later():
            try:
                if self._job_id:
                    self._cancel()
                    self._end_orphans()
            finally:
                for step in self._steps:
                    step.close()
                self._dismiss_guard()
                self._lines = self._lines or _last_lines(self._folder / "output")
                shutil.rmtree(self._folder, ignore_errors=True)
            if self._job is not None:
                new = _names_in(Path(self._job.work_dir)) - self._there_before
                self._left = tuple(sorted(name for name in new if _has_id(name, self._job_id)))

    def _cancel(self) -> None:
        """Cancel the job, and wait until it has left its nodes."""
        if self._steps:
            # Including processes that Slurm would leave behind.
            self._steps[-1].order("finish")
            give_up_s = time.monotonic() + FINISHES_S
            while not self._steps[-1].is_over and time.monotonic() < give_up_s:
                self._steps[-1].line(LISTEN_S)
        self._slurm.cancel(self._job_id)
        self._wait_until_gone()

    def _end_orphans(self) -> None:
        """End the processes that Slurm may have left behind from the last runs, which no later run
        checked."""
        if self._watched is not None:
            self._last_run = self._watched.journal.run()
        orphans = {
            one.node
            for run in (*self._runs, self._last_run)
            for one in run.processes
            if one.orphaned_s is not None and (run.number, one.node) not in self._looked
        }
        for node in sorted(orphans):
            self._look_at(node)

    def _wait_until_gone(self) -> None:
        give_up_s = time.monotonic() + self._settings.kill_wait_s + LEAVES_S
        while time.monotonic() < give_up_s:
            try:
                job = self._slurm.job(self._job_id)
            except TiresiasError:
                return
            if job.has_ended:
                return
            self._drain()
            time.sleep(LOOK_S)

    def _drain(self) -> None:
        """Read the output of the last watchers, so that their srun does not block."""
        for step in self._steps:
            while step.line(0.0) is not None:
                pass

    # The trials

    def _carry_out(self, begun: list[_Begun]) -> None:
        """Carry out the trials in turn; the run that follows one trial is preempted by the next."""
        watched = self._start()
        for kind in self._plan.kinds:
            trial = _Begun(kind, first_run=len(self._runs))
            begun.append(trial)
            for number in range(2 if kind is Kind.TWICE else 1):
                self._say(_doing(kind, number))
                trial.trouble = self._wait_for_the_moment(
                    watched, in_start_up=kind is Kind.START_UP or number > 0
                )
                if trial.trouble:
                    break
                self._runs.append(self._preempt(watched, again=kind is Kind.SAVE))
                self._prepare_next(watched.journal)
                elsewhere = kind is self._moves_after and number == 0
                trial.runs += 1
                watched = self._restart(elsewhere=elsewhere)
            if not trial.trouble:
                self._wait_for_steps(watched)
            self._lines = tuple(watched.journal.last_lines)
            if trial.trouble or watched.journal.run().ended:
                break
        self._last_run = watched.journal.run()

    @property
    def _moves_after(self) -> Kind:
        """The trial after which the job starts on other nodes, if any others fit."""
        return Kind.STEP if Kind.STEP in self._plan.kinds else self._plan.kinds[0]

    def _restart(self, *, elsewhere: bool) -> _Watched:
        """Start the job again, elsewhere if other nodes take it soon."""
        nodes = self._runs[-1].nodes if elsewhere else ()
        excluded = ",".join([self._excluded, *nodes]).strip(",")
        options = (*self._plan.options, f"--time={self._plan.minutes}")
        if nodes and self._slurm.fits_without(options, self._plan.script, excluded):
            self._slurm.start_soon(self._job_id, RESTART_IN_S, excluded)
            give_up_s = time.monotonic() + ELSEWHERE_S
            while time.monotonic() < give_up_s:
                if self._slurm.job(self._job_id).state != "PENDING":
                    return self._start()
                time.sleep(LOOK_S)
        self._slurm.start_soon(self._job_id, RESTART_IN_S, self._excluded)
        return self._start()

    def _start(self) -> _Watched:
        """Wait until the job runs, and watch it."""
        number = len(self._runs)
        job = self._wait_for_state("RUNNING", self._plan.start_wait_s)
        journal = RunJournal(number, self._job_id, str(self._folder))
        if job.has_ended:
            journal.ended_itself(job.state, job.exit_code)
            self._watched = _Watched(journal, _NoStep())
            return self._watched
        if job.restarts != number:
            raise CannotRehearseError(
                f"Job {self._job_id} was requeued by another user meanwhile", "Try again"
            )
        self._job = job
        step = self._slurm.step(self._job_id, len(job.nodes), self._told(job))
        self._steps.append(step)
        self._watched = watched = _Watched(journal, step)
        self._listen(watched, lambda: len(journal.nodes_up) >= len(job.nodes), WATCHER_S)
        if not journal.nodes_up and not journal.run().ended:
            raise CannotRehearseError(
                f"No step to watch the job could be started: {step.complaints()[:200]}",
                "See whether srun works on its nodes: srun --overlap --jobid=ID python3 -V",
            )
        self._looked |= {(run.number, node) for run in self._runs for node in journal.nodes_up}
        self._survivors += journal.survivors
        return watched

    def _told(self, job: UserJob) -> Mapping[str, object]:
        """Return the arguments of the watchers."""
        return {
            "job": self._job_id,
            "cluster": self._settings.cluster,
            "output": str(self._folder / "output"),
            "offset": self._marked,
            "mark": self._mark if self._marked else "",
            "logs": self._logs,
            "root": job.work_dir,
            "since_s": time.time() - 2.0,
            "folder": str(self._folder),
            "earlier": self._earlier(),
            "only_survivors": False,
            "kill": True,
        }

    _marked = 0
    """The position of the end of the mark in the output; 0 for no mark."""

    @property
    def _mark(self) -> str:
        return f"\n--- drill: start {len(self._runs) + 1} ---\n"

    def _prepare_next(self, journal: RunJournal) -> None:
        """Add a line to the job's output while the job waits; its next start may empty it.

        Also note the ends of its own logs, and remove what it has reported: each run reports anew,
        as with the plugin.
        """
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

    def _earlier(self) -> list[dict[str, object]]:
        found = [
            {"run": run.number, "node": one.node, "pid": one.pid, "start": one.start}
            for run in (*self._runs, self._last_run)
            for one in run.processes
        ]
        return found[-MOST_EARLIER:]

    def _wait_for_the_moment(self, watched: _Watched, in_start_up: bool) -> str:
        """Wait until the job has reached the point of its preemption; return what went wrong, if
        anything."""
        journal = watched.journal
        if in_start_up:
            self._listen(watched, lambda: journal.has_processes, WATCHER_S)
        else:
            self._wait_for_steps(watched)
        run = journal.run()
        if not run.ended:
            return ""
        self._lines = tuple(journal.last_lines)
        return f"the job ended by itself as {run.ended} (exit code {run.exit_code}) before it"

    def _wait_for_steps(self, watched: _Watched) -> None:
        """Wait until the run makes steps; if it reports none, wait for the time allowed."""
        journal = watched.journal
        wait_s = self._plan.step_wait_s if self._tells else min(SILENT_S, self._plan.step_wait_s)
        # A job that has shown no steps may still say where it resumes.
        self._listen(
            watched,
            lambda: self._shows_steps(journal) or (journal.has_resumed and not self._tells),
            wait_s,
        )
        self._tells = self._shows_steps(journal)
        settled_s = time.monotonic() + LEAST_S
        self._listen(
            watched,
            lambda: journal.moves >= STEPS_BEFORE and time.monotonic() > settled_s,
            SETTLE_S,
        )
        # Right after a save, a program that saves nothing on its signal would lose nothing.
        self._listen(watched, lambda: journal.would_lose_steps, SETTLE_S)

    def _shows_steps(self, journal: RunJournal) -> bool:
        """Whether a run has made steps; one number suffices if it moved in an earlier run."""
        return bool(journal.moves or journal.lines_counted & self._moving)

    def _preempt(self, watched: _Watched, *, again: bool) -> Run:
        """Preempt the job as the controller does; return its run once it waits again."""
        journal, step = watched.journal, watched.step
        asks = self._asks(journal)
        checkpoint = asked(self._site) if asks else self._checkpoint
        first = checkpoint.signal
        number = signal.Signals[f"SIG{first}"] if first else signal.SIGTERM
        if first:
            journal.signalled(number, time.time(), asked=asks)
            self._slurm.signal(self._job_id, first)
        if again:
            step.order(f"again {number:d}")
        if first:
            give_up_s = time.monotonic() + checkpoint.grace_s
            while not (step.is_over or journal.has_answered) and time.monotonic() < give_up_s:
                self._hear(watched, LISTEN_S)
        journal.requeued(time.time())
        self._slurm.requeue(self._job_id)
        return self._wait_for_requeue(watched)

    def _asks(self, journal: RunJournal) -> bool:
        """Whether the run is asked to save because it would get no signal otherwise.

        Without the site's plugin the controller would not know that the run saves on request.
        """
        if not journal.by_plugin:
            return False
        now_s, restarts = journal.node_s(time.time()), len(self._runs)
        return is_asked(self._checkpoint, restarts, journal.progress, self._site, now_s)

    def _wait_for_requeue(self, watched: _Watched) -> Run:
        """Wait until the job is pending again, and let it start; restart it if it has ended.

        It has ended if it exited between the checkpoint signal and the requeue.
        """
        give_up_s = time.monotonic() + self._settings.kill_wait_s + LEAVES_S
        while (job := self._slurm.job(self._job_id)).state != "PENDING":
            if time.monotonic() > give_up_s:
                raise CannotRehearseError(
                    f"Job {self._job_id} has not left its nodes after its requeue",
                    "Check its nodes: an epilog may hang",
                )
            if job.has_ended:
                watched.journal.ended_itself(job.state, job.exit_code)
                self._slurm.requeue(self._job_id, ended=True)
            self._hear(watched, LOOK_S)
        while not watched.step.is_over and time.monotonic() < give_up_s:
            self._hear(watched, LISTEN_S)
        return watched.journal.run()

    # Waiting

    def _hear(self, watched: _Watched, timeout_s: float) -> None:
        """Read one line of the watchers if there is one within this time."""
        if watched.step.is_over:
            time.sleep(timeout_s)
        elif (line := watched.step.line(timeout_s)) is not None:
            watched.journal.add(line, time.time())
        elif watched.step.is_over:
            watched.journal.over(time.time())

    def _listen(self, watched: _Watched, until: Callable[[], bool], timeout_s: float) -> None:
        """Read the watchers' lines until the condition holds, the run has ended, or the time is
        over."""
        give_up_s = time.monotonic() + timeout_s
        while not until() and time.monotonic() < give_up_s:
            if watched.step.is_over and self._note_end(watched):
                return
            self._hear(watched, LOOK_S if watched.step.is_over else LISTEN_S)

    def _note_end(self, watched: _Watched) -> bool:
        """Whether the job has ended by itself; its end is recorded."""
        if watched.journal.run().ended:
            return True
        job = self._slurm.job(self._job_id)
        if job.has_ended:
            watched.journal.ended_itself(job.state, job.exit_code)
        return job.has_ended

    def _wait_for_state(self, state: str, timeout_s: float) -> UserJob:
        give_up_s = time.monotonic() + timeout_s
        told_s = time.monotonic() + 5.0
        while True:
            job = self._slurm.job(self._job_id)
            if job.state == state or job.has_ended:
                return job
            now_s = time.monotonic()
            if now_s > give_up_s:
                raise CannotRehearseError(
                    f"Job {self._job_id} did not start within {timeout_s / 60:g} minutes "
                    f"({job.reason})",
                    "Ask for less, or for another partition; --wait-min waits longer",
                )
            if now_s > told_s:
                told_s = now_s + 60.0
                self._say(f"waits to start ({job.reason})")
            time.sleep(LOOK_S)

    # Leftover processes

    def _look_for_survivors(self) -> tuple[str, ...]:
        """Check the nodes that no later run of the job used; return those that cannot be
        checked."""
        ran_on = {(run.number, node) for run in self._runs for node in run.nodes}
        nodes = {node for _, node in ran_on - self._looked}
        if not nodes:
            return ()
        self._say("looks for what stayed behind")
        self._cancel()
        return tuple(node for node in sorted(nodes) if not self._look_at(node))

    def _look_at(self, node: str) -> bool:
        assert self._job is not None
        told = {**self._told(self._job), "only_survivors": True}
        step = self._slurm.look_at(node, self._job, told)
        self._steps.append(step)
        journal = RunJournal(len(self._runs))
        seen_end = False
        give_up_s = time.monotonic() + 2 * WATCHER_S
        while not step.is_over and time.monotonic() < give_up_s:
            line = step.line(LISTEN_S)
            if line is not None:
                journal.add(line, time.time())
                seen_end |= '"kind": "end"' in line
        if seen_end:
            self._looked |= {(run.number, node) for run in self._runs}
        known = {(one.node, one.pid) for one in self._survivors}
        self._survivors += [one for one in journal.survivors if (one.node, one.pid) not in known]
        return seen_end

    def _trial(self, begun: _Begun) -> Trial:
        """Return a trial with everything known so far about the runs before, in and after it."""
        all_runs = [*self._runs, self._last_run]
        ends = begun.first_run + begun.runs
        numbers = range(begun.first_run, ends)
        return Trial(
            begun.kind,
            tuple(all_runs[begun.first_run : ends]),
            all_runs[ends] if begun.runs else None,
            tuple(all_runs[: begun.first_run]),
            tuple(one for one in self._survivors if one.run in numbers),
            begun.trouble,
        )


class _NoStep:
    """The step of a run that ended before it could be watched."""

    is_over = True

    def line(self, timeout_s: float) -> str | None:
        return None

    def order(self, words: str) -> None:
        return None

    def complaints(self) -> str:
        return ""

    def close(self) -> None:
        return None


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


def _doing(kind: Kind, number: int) -> str:
    return {
        Kind.START_UP: "preempts it during start-up",
        Kind.STEP: "preempts it in a step",
        Kind.SAVE: "preempts it, and once more during the save",
        Kind.TWICE: "preempts it again, as soon as it has started"
        if number
        else "preempts it in a step, to preempt it again at once",
    }[kind]
