"""The service on a compute node: samples GPUs, and reports the progress of jobs to the
controller."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_tiresias.profiler.gpu_sampler import Sampler
from slurm_tiresias.profiler.node_folders import SamplerFolderError, folder_locked, may_write_into
from slurm_tiresias.progress.node import NodeProgress

log = logging.getLogger("tiresias-slurm")

LOOK_EVERY_S = 1.0
"""The interval at which it checks whether a job has saved on request, which a preemptor may wait
for."""

_STOP = frozenset({signal.SIGTERM, signal.SIGINT})


def run(run_dir: Path, collect_dir: Path, every_s: float) -> None:
    """Serve until a signal stops it.

    GPU samples of jobs that are still running are then lost: the next sampler starts anew, so that
    a run never has two files.
    """
    if not may_write_into(collect_dir):
        raise SamplerFolderError(
            f"The folder {collect_dir} does not exist, or may not be written to",
            "Give --collect as in plugstack.conf, and see that it is mounted",
        )
    with folder_locked(run_dir), _signals_held():
        sampler, progress = (
            Sampler(run_dir, collect_dir, every_s),
            NodeProgress(run_dir, collect_dir),
        )
        log.info("handles the jobs in %s every %g s", run_dir, every_s)
        stopping, due_s = False, time.monotonic() + every_s
        while not stopping:
            stopping = signal.sigtimedwait(_STOP, min(every_s, LOOK_EVERY_S)) is not None
            is_due = stopping or time.monotonic() >= due_s
            if is_due:
                due_s = time.monotonic() + every_s
                sampler.tick(time.monotonic(), time.time())
            if is_due or progress.has_news():
                progress.tick(time.monotonic(), time.time())
        log.info("stopped")


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block signals for ``sigtimedwait``: none interrupts a tick, and none is missed in a sleep."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
