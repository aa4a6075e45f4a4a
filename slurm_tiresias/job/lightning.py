"""Lightning: a callback that reports, saves when the job is asked to, and exits.

    from slurm_tiresias.job.lightning import Preemptible

    trainer = lightning.Trainer(callbacks=[Preemptible(path)], plugins=[LightningEnvironment()])
    trainer.fit(model, data, ckpt_path=path if path.exists() else None)

Slurm requeues the job, so Lightning must not: ``LightningEnvironment`` prevents that, and so does
``SLURMEnvironment(auto_requeue=False)`` for several tasks. A data loader that does not save its
position (a plain ``DataLoader``) restarts its epoch: use torchdata's ``StatefulDataLoader``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

import slurm_tiresias.job.torch  # noqa: F401 - protects the workers of data loaders
from slurm_tiresias.job import session


class Preemptible(Callback):  # type: ignore[misc]
    """Saves to ``path`` on request, before the time limit and every ``every_min`` minutes.

    The checkpoint is one file, replaced atomically. Once the job has been told to leave and has
    saved, ``fit`` raises ``SystemExit``.
    """

    def __init__(self, path: str | os.PathLike[str], every_min: float = 30.0) -> None:
        self.path = Path(path)
        self.every_min = every_min

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        # Not earlier: the trainer has set its own handlers by now.
        session.listen()
        session.resumed(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        step = int(trainer.global_step)
        session.report(step, self._total(trainer))

        def any_process(mine: bool) -> bool:
            return bool(trainer.strategy.reduce_boolean_decision(mine, all=False))

        if not session.save_due(self.every_min, any_process):
            return
        # A failed save ends the training: the other processes wait for it in a barrier.
        session.saving()
        draft = self.path.with_name(self.path.name + ".draft")
        trainer.save_checkpoint(draft)
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            draft.replace(self.path)
        session.saved(step)
        if session.leaving(any_process):
            session.leave()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        session.done()

    def _total(self, trainer: Any) -> int | None:
        """Steps of the whole training; None if Lightning does not know."""
        total = trainer.estimated_stepping_batches
        return int(total) if total not in (None, -1, float("inf")) else None
