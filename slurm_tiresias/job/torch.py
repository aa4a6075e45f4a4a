"""PyTorch: the ranks of a job agree, and workers of data loaders survive until the save.

from slurm_tiresias import job
from slurm_tiresias.job.torch import any_rank

for step in job.steps(10_000, save=save, load=load, agree=any_rank):
    ...
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

import torch
from torch import distributed
from torch.utils.data import _utils


def any_rank(mine: bool) -> bool:
    """Whether any rank says yes; each has to call it at the same step."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return mine
    on_gpu = distributed.get_backend() == "nccl"
    flag = torch.tensor(int(mine), device="cuda" if on_gpu else "cpu")
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


def protect_workers() -> None:
    """Let a data loader's workers outlive one SIGTERM.

    Slurm may send it to all processes of a job. Without its workers the program could not finish
    the step after which it saves. A second SIGTERM ends them, which is how a data loader ends
    workers that hang. Called for every data loader that is made after this module is imported.
    """
    known: Callable[[], None] | None = getattr(
        _utils.signal_handling, "_set_worker_signal_handlers", None
    )
    if known is None or getattr(known, "protects", False):
        return

    def set_handlers() -> None:
        assert known is not None
        known()
        signal.signal(signal.SIGTERM, _survive_one)

    set_handlers.protects = True  # type: ignore[attr-defined]
    _utils.signal_handling._set_worker_signal_handlers = set_handlers


def _survive_one(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


protect_workers()
