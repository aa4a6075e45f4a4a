"""Accelerate: atomic checkpoints, each in a folder.

    from slurm_tiresias import job
    from slurm_tiresias.job.accelerate import Checkpoints

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    checkpoints = Checkpoints(accelerator, folder)
    done = checkpoints.restore()
    steps = job.steps(total, checkpoints.save, done, agree=checkpoints.any_process)
    for step, batch in zip(steps, accelerator.skip_first_batches(loader, done)):
        train(batch)

Importing it lets the workers of data loaders survive until the save (``job.torch``).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator

import slurm_tiresias.job.torch  # noqa: F401 - protects the workers of data loaders
from slurm_tiresias.job.files import by_step, sync

_NAME = "step-"
_DRAFT = ".draft"


class Checkpoints:
    """Saves the state of an accelerator, and restores it.

    A checkpoint is a folder ``step-N`` in ``folder``, which all processes must see. It is written
    beside the previous one and renamed; then the previous one is removed.
    """

    def __init__(self, accelerator: Accelerator, folder: str | os.PathLike[str]) -> None:
        self.accelerator = accelerator
        self.folder = Path(folder)

    def any_process(self, mine: bool) -> bool:
        """Whether any process says yes; each must call it at the same step."""
        flag = torch.tensor(int(mine), device=self.accelerator.device)
        return bool(self.accelerator.reduce(flag, reduction="sum"))

    def save(self, step: int) -> None:
        """Save the state after ``step`` steps; each process must call it at the same step."""
        whole = self.folder / f"{_NAME}{step}"
        draft = whole.with_name(whole.name + _DRAFT)
        if self.accelerator.is_main_process:
            shutil.rmtree(draft, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.save_state(str(draft))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            for path in (*draft.rglob("*"), draft):
                sync(path)
            # A folder for the same step was left by an earlier run that did this step; it is
            # equivalent.
            shutil.rmtree(whole, ignore_errors=True)
            draft.replace(whole)
            sync(self.folder)
            for other in self.folder.glob(f"{_NAME}*"):
                if other != whole:
                    shutil.rmtree(other, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def restore(self) -> int:
        """Load the newest checkpoint; return its number of steps, 0 if there is none."""
        steps = by_step(self.folder, _NAME)
        if not steps:
            return 0
        self.accelerator.load_state(str(steps[max(steps)]))
        return max(steps)
