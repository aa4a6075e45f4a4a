"""PyTorch: agreement among the ranks of a job, and data loader workers that survive until the save.

    from slurm_tiresias import job
    from slurm_tiresias.job.torch import any_rank

    for step in job.steps(10_000, save, done=load(), agree=any_rank):
        train(step)

Importing it is enough for the workers.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
from collections.abc import Callable

import torch
from torch import distributed

from slurm_tiresias.job import children
from slurm_tiresias.job.requests import watch_forks

_SETS_HANDLERS = "_set_worker_signal_handlers"


def any_rank(mine: bool) -> bool:
    """Whether any rank says yes; each must call it at the same step."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return mine
    on_gpu = distributed.get_backend() == "nccl"
    flag = torch.tensor(int(mine), device="cuda" if on_gpu else "cpu")
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


def protect_workers() -> None:
    """Make the workers of data loaders created from now on survive one SIGTERM.

    Slurm may send it to all processes of a job, and without its workers the program could not
    finish the step after which it saves. PyTorch sets handlers of its own in its workers, which
    replace those of ``job.children``. Importing this module calls this function.
    """
    # Not part of PyTorch's interface: a release without it leaves its workers as they are.
    module = importlib.import_module("torch.utils.data._utils.signal_handling")
    set_by_torch: Callable[[], None] | None = getattr(module, _SETS_HANDLERS, None)
    if set_by_torch is None or getattr(set_by_torch, "protects", False):
        return

    def set_handlers() -> None:
        set_by_torch()
        signal.signal(signal.SIGTERM, children.survive_one)

    watch_forks()
    set_handlers.protects = True  # type: ignore[attr-defined]
    setattr(module, _SETS_HANDLERS, set_handlers)


with contextlib.suppress(ImportError):
    protect_workers()
