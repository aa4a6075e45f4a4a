"""Many settings of one workload, each simulated on a core of its own.

A cell is one setting. Results come in the order of the cells, not as they finish, and a cell
that fails says why and leaves the others alone. ``sweep_on_slurm`` does the same on a cluster.
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

from slurm_tiresias.config import ORDERS
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.workload import Workload

NOTICED_WAIT_S = 60.0
"""A job that waited less than this in all counts as one that found its GPUs free."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting of a sweep; everything else is the same for all of them."""

    thresholds_gpu_s: tuple[float, ...]
    policy: str = "tiresias-l"
    order: str = ORDERS[0]
    promote_knob: float = 0.0
    """PROMOTEKNOB of the paper (page 491); 0 is off, the paper's infinity."""

    @property
    def queues(self) -> int:
        return len(self.thresholds_gpu_s) + 1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a setting brought: completion times in the order of the workload, and their price."""

    cell: Cell
    jct_s: tuple[float, ...]
    jobs_that_waited: int
    preemptions: int
    promotions: int
    lost_gpu_s: float
    """GPU time spent on restarts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A cell that brought nothing, and why in one line."""

    cell: Cell
    why: str


Result = Measured | Failed


@dataclass(frozen=True, slots=True)
class Task:
    """What all cells of a sweep share. The policy settings of ``setup`` give way to the cell's."""

    workload: Workload
    setup: run.Setup


def measure(task: Task, cell: Cell) -> Result:
    """Simulate one cell; whatever goes wrong in it becomes its result."""
    try:
        policy = replace(
            task.setup.config.policy,
            thresholds_gpu_s=cell.thresholds_gpu_s,
            order=cell.order,
            promote_knob=cell.promote_knob,
        )
        setup = replace(task.setup, config=replace(task.setup.config, policy=policy))
        outcomes = run.simulate(task.workload, cell.policy, setup)
        return Measured(
            cell,
            jct_s=tuple(outcome.jct_s for outcome in outcomes),
            jobs_that_waited=sum(outcome.waited_s >= NOTICED_WAIT_S for outcome in outcomes),
            preemptions=sum(outcome.preemptions for outcome in outcomes),
            promotions=sum(outcome.promotions for outcome in outcomes),
            lost_gpu_s=sum(outcome.lost_s * outcome.job.gpus for outcome in outcomes),
        )
    except Exception as error:  # one cell of many: the others go on
        return Failed(cell, " ".join(f"{type(error).__name__}: {error}".split()))


def cores() -> int:
    """How many processes run at once on this machine, if nothing else is asked for."""
    return len(os.sched_getaffinity(0))


def run_here(
    task: Task,
    cells: Sequence[Cell],
    progress: Callable[[int], None] = lambda _: None,
    workers: int = 0,
) -> tuple[Result, ...]:
    """Simulate every cell on this machine; results in the order of the cells.

    ``progress`` is told how many different cells are done; ``workers`` 0 takes all cores. A worker
    that is killed, for its memory say, costs its own cell only. Ctrl-C ends all workers.
    """
    found: dict[Cell, Result] = {}

    def tell(result: Result) -> None:
        found[result.cell] = result
        progress(len(found))

    asked = tuple(dict.fromkeys(cells))
    _run_in_pool(task, asked, workers or cores(), tell)
    # A killed worker breaks its pool and does not say on which cell: what is left runs one by one.
    for cell in [cell for cell in asked if cell not in found]:
        _run_in_pool(task, (cell,), 1, tell)
        if cell not in found:
            tell(Failed(cell, "its process was killed, perhaps for want of memory"))
    return tuple(found[cell] for cell in cells)


def _run_in_pool(
    task: Task, cells: Sequence[Cell], workers: int, tell: Callable[[Result], None]
) -> None:
    """Tell each result as it comes; fewer than all if a worker was killed."""
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
        # Waits for the pool's own thread, with which Python would otherwise collide at its end.
        pool.shutdown(cancel_futures=True)
        raise


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C, and this one sees it afterwards.

    A terminal sends it to all of them, but this process alone decides what ends. Blocking
    it is for those that are started: here a thread of NumPy's, which blocks nothing, would take it
    and interrupt the main thread all the same, with a worker half started.
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
"""In a worker: the one task it was started with."""


def _begin(task: Task) -> None:
    """Take the task over, once for all cells that this worker will run."""
    _mine[:] = [task]
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would otherwise wait for its next cell for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _measure_mine(cell: Cell) -> Result:
    return measure(_mine[0], cell)
