"""Sweeps on a Slurm cluster: a job array with one job per cell, submitted with submitit.

A cell is a pure function of the task and its setting, so a job that Slurm requeues simply runs it
again, and the results are those of ``run_here``. squeue tells whether a job is still alive:
submitit would use sacct, which not every cluster has, and takes a job cancelled by a preemption for
one that will be requeued.
"""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.extras import how_to_install
from slurm_tiresias.simulator.sweep import Cell, Failed, Result, Task, measure
from slurm_tiresias.slurm.live_tasks import live_tasks

if TYPE_CHECKING:
    from submitit import Job, SlurmExecutor

DEFAULT_MINUTES = 60

POLL_S = 1.0
ASK_SLURM_EVERY_S = 5.0
RESULT_MAY_LAG_S = 20.0
"""How long after the end of its job a result may appear on a network file system."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The Slurm options. ``folder`` must be shared by this machine and all nodes."""

    folder: Path
    partition: str | None = None
    minutes: int = DEFAULT_MINUTES


def run_on_slurm(
    task: Task, cells: Sequence[Cell], jobs: Jobs, progress: Callable[[int], None] = lambda _: None
) -> tuple[Result, ...]:
    """Simulate each cell in its own job; return the results in the order of the cells.

    A job that ends without a result gives a ``Failed`` that names its log. Ctrl-C, or any error
    while waiting, cancels the jobs. Files are removed afterwards unless there are logs to read.
    Raises ``TiresiasError`` if there is no Slurm or sbatch refuses the jobs.
    """
    asked = tuple(dict.fromkeys(cells))
    folder = _fresh_folder(jobs.folder)
    keep_logs = False
    try:
        submitted = _submitted(task, asked, jobs, folder)
        sweep = _Sweep(dict(zip(asked, submitted, strict=True)), progress)
        try:
            found = sweep.wait()
        except BaseException:
            sweep.cancel()
            raise
        keep_logs = any(isinstance(result, Failed) for result in found.values())
    finally:
        if not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
    return tuple(found[cell] for cell in cells)


def _fresh_folder(parent: Path) -> Path:
    """Create a folder for one sweep. Slurm takes ``%`` in the names of log files as a pattern."""
    path = parent.expanduser().absolute()
    if "%" in str(path) or not str(path).isprintable():
        raise UsageError(
            f"Slurm cannot write logs to {str(path)!r}", "Name a folder without % and line breaks"
        )
    path.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="tiresias-tune-", dir=path))


def _submitted(
    task: Task, cells: Sequence[Cell], jobs: Jobs, folder: Path
) -> Sequence[Job[Result]]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    shared = folder / "task.pickle"
    shared.write_bytes(pickle.dumps(task))
    executor = _executor(jobs, folder)
    try:
        # submitit also prints sbatch's message, which is already in the error.
        with contextlib.redirect_stderr(io.StringIO()):
            return executor.map_array(_run_cell, [str(shared)] * len(cells), cells)
    except (FailedJobError, FailedSubmissionError) as error:
        said = " ".join(str(error).replace("sbatch: error: ", "").split())
        raise TiresiasError(
            f"sbatch refused the sweep: {said}", "Change the options, or run without --on-slurm"
        ) from error


def _executor(jobs: Jobs, folder: Path) -> SlurmExecutor:
    from submitit import SlurmExecutor

    logging.getLogger("submitit").setLevel(logging.ERROR)
    try:
        executor = SlurmExecutor(folder)
    except RuntimeError as error:
        raise TiresiasError(
            "Slurm's commands are not in PATH", "Run where sbatch works, or without --on-slurm"
        ) from error
    options: dict[str, Any] = {"partition": jobs.partition} if jobs.partition else {}
    # Without a job step, a cell is not signalled before its time limit; submitit would take the
    # signal for a preemption and requeue a job that is too long forever.
    executor.update_parameters(
        job_name="tiresias-tune", time=jobs.minutes, cpus_per_task=1, use_srun=False, **options
    )
    return executor


def check_submitit() -> None:
    """Raise ``UsageError`` if submitit is not installed."""
    if find_spec("submitit") is None:
        raise UsageError(
            "--on-slurm needs submitit, which is not installed",
            f"Do: {how_to_install(('submitit',))}",
        )


def _run_cell(shared: str, cell: Cell) -> Result:
    """Run one cell in a Slurm job."""
    task: Task = pickle.loads(Path(shared).read_bytes())
    return measure(task, cell)


class _Sweep:
    """The submitted jobs, until each has returned a result or ended without one."""

    def __init__(self, jobs: Mapping[Cell, Job[Result]], progress: Callable[[int], None]) -> None:
        self._jobs = jobs
        self._progress = progress
        self._found: dict[Cell, Result] = {}
        self._gone_since_s: dict[Cell, float] = {}
        self._asked_s = float("-inf")

    def wait(self) -> Mapping[Cell, Result]:
        while True:
            for cell, job in self._unfinished().items():
                if job.paths.result_pickle.exists():
                    self._found[cell] = _result(cell, job)
            self._give_up()
            self._progress(len(self._found))
            if len(self._found) == len(self._jobs):
                return self._found
            time.sleep(POLL_S)

    def cancel(self) -> None:
        """Cancel the jobs that have not ended; one scancel covers a whole array."""
        from submitit import SlurmJob

        for array in self._arrays():
            folder = next(iter(self._jobs.values())).paths.folder
            SlurmJob[Any](folder=folder, job_id=array).cancel(check=False)

    def _arrays(self) -> Collection[str]:
        return dict.fromkeys(job.job_id.partition("_")[0] for job in self._jobs.values())

    def _unfinished(self) -> Mapping[Cell, Job[Result]]:
        return {cell: job for cell, job in self._jobs.items() if cell not in self._found}

    def _give_up(self) -> None:
        """Mark jobs as failed that Slurm no longer has and that have returned no result since."""
        now_s = time.monotonic()
        if now_s - self._asked_s < ASK_SLURM_EVERY_S:
            return
        self._asked_s = now_s
        try:
            live = frozenset().union(*map(live_tasks, self._arrays()))
        except TiresiasError:
            return  # while slurmctld is unreachable, the jobs may still be alive
        for cell, job in self._unfinished().items():
            if job.job_id in live:
                self._gone_since_s.pop(cell, None)
            elif now_s - self._gone_since_s.setdefault(cell, now_s) >= RESULT_MAY_LAG_S:
                self._found[cell] = Failed(cell, _ended(job, "ended without a result"))


def _result(cell: Cell, job: Job[Result]) -> Result:
    from submitit.core.utils import UncompletedJobError

    try:
        return job.result()
    except UncompletedJobError:
        return Failed(cell, _ended(job, "failed"))


def _ended(job: Job[Result], how: str) -> str:
    """Describe a job without a result: the end of its log, and where the log is."""
    log = job.paths.stderr
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return f"job {job.job_id} {how} and wrote no log to {log}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
    return f"job {job.job_id} {how}; its log {log} ends in: {last}"
