"""Sweeps: simulations of one workload with many settings, in parallel on this machine.

A cell is one setting. Results are in the order of the cells. A cell that fails gives a ``Failed``
with the reason and does not affect the others. ``sweep_on_slurm`` does the same on a cluster.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, parent_process
from threading import Thread

from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.workload import Workload

NOTICED_WAIT_S = 60.0
"""A job that waited less than this in total counts as not having waited."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting of a sweep; everything else is the same for all cells."""

    thresholds_gpu_s: tuple[float, ...]
    policy: str = "tiresias-l"
    promote_knob: float = 0.0
    """PROMOTEKNOB of the paper (page 491); 0 means off, which is infinity in the paper."""
    reports: ReportModel | None = None
    """How the jobs report their progress; None if none does."""
    estimates: tuple[str, ...] = ()
    """Added to ``policy.estimates``."""

    @property
    def tiers(self) -> int:
        return len(self.thresholds_gpu_s) + 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a cell: completion times in the order of the workload, and their costs."""

    cell: Cell
    jct_s: tuple[float, ...]
    jobs_that_waited: int
    preemptions: int
    promotions: int
    lost_gpu_s: float
    """GPU time spent on restarts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A cell without a result, and the reason in one line."""

    cell: Cell
    why: str


Result = Measured | Failed


@dataclass(frozen=True, slots=True)
class Task:
    """The inputs that all cells share; a cell overrides the policy settings in ``setup``."""

    workload: Workload
    setup: run.Setup


def measure(task: Task, cell: Cell) -> Result:
    """Simulate one cell; any exception becomes a ``Failed`` result."""
    try:
        site = task.setup.config.policy
        policy = replace(
            site,
            thresholds_gpu_s=cell.thresholds_gpu_s,
            promote_knob=cell.promote_knob,
            estimates=tuple(dict.fromkeys((*site.estimates, *cell.estimates))),
        )
        config = replace(task.setup.config, policy=policy)
        setup = replace(task.setup, config=config, reports=cell.reports or task.setup.reports)
        outcomes = run.simulate(task.workload, cell.policy, setup)
        return Measured(
            cell,
            jct_s=tuple(outcome.jct_s for outcome in outcomes),
            jobs_that_waited=sum(outcome.waited_s >= NOTICED_WAIT_S for outcome in outcomes),
            preemptions=sum(outcome.preemptions for outcome in outcomes),
            promotions=sum(outcome.promotions for outcome in outcomes),
            lost_gpu_s=sum(outcome.lost_s * outcome.job.gpus for outcome in outcomes),
        )
    except Exception as error:  # the other cells continue
        return Failed(cell, " ".join(f"{type(error).__name__}: {error}".split()))


def cores() -> int:
    """Return the default number of worker processes: the cores available to this process."""
    return len(os.sched_getaffinity(0))


def run_here(
    task: Task,
    cells: Sequence[Cell],
    progress: Callable[[int], None] = lambda _: None,
    workers: int = 0,
) -> tuple[Result, ...]:
    """Simulate every cell on this machine; return the results in the order of the cells.

    ``progress`` is called with the number of distinct cells done; ``workers`` 0 uses all cores. If
    a worker is killed, for example for its memory, only its own cell fails. Ctrl-C ends all
    workers.
    """
    found: dict[Cell, Result] = {}

    def tell(result: Result) -> None:
        found[result.cell] = result
        progress(len(found))

    asked = tuple(dict.fromkeys(cells))
    _run_in_pool(task, asked, workers or cores(), tell)
    # A killed worker breaks its pool, and its cell is unknown: run the remaining cells one by one.
    for cell in [cell for cell in asked if cell not in found]:
        _run_in_pool(task, (cell,), 1, tell)
        if cell not in found:
            tell(Failed(cell, "its process was killed, perhaps for want of memory"))
    return tuple(found[cell] for cell in cells)


def _run_in_pool(
    task: Task, cells: Sequence[Cell], workers: int, tell: Callable[[Result], None]
) -> None:
    """Call ``tell`` with each result as it arrives; some are missing if a worker was killed."""
    others = set(active_children())
    pool = ProcessPoolExecutor(min(workers, len(cells) or 1), get_context("spawn"), _begin, (task,))
    try:
        with _deaf_to_ctrl_c():
            futures = [pool.submit(_measure_mine, cell) for cell in cells]
        for future in as_completed(futures):
            tell(future.result())
        pool.shutdown()
    except BrokenProcessPool:
        pool.shutdown()
    except BaseException:
        for worker in set(active_children()) - others:
            worker.terminate()
        # Wait for the pool's thread, which could otherwise clash with the interpreter's exit.
        pool.shutdown(cancel_futures=True)
        raise


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes that never receive Ctrl-C; this process receives it afterwards.

    A terminal sends SIGINT to all processes, but only this one decides what ends. The signal mask
    is for the workers, which inherit it. The mask is not enough here: a NumPy thread, which does
    not block SIGINT, could receive it and interrupt the main thread with a worker half started.
    """
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


_mine: list[Task] = []
"""In a worker: a list with the task that it was started with."""


def _begin(task: Task) -> None:
    """Initialize a worker with the task that all its cells share."""
    _mine[:] = [task]
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End a worker whose parent was killed; it would otherwise wait for its next cell forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _measure_mine(cell: Cell) -> Result:
    return measure(_mine[0], cell)
