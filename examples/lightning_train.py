#!/usr/bin/env python3
"""Lightning: told to leave, it saves after the step it is in; started again, it goes on from there.

    python3 examples/lightning_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/lightning_train.py --steps 1000

Slurm requeues the job, so Lightning must not: its own handler, which would do so on SIGUSR1, is
left out, and its handler of SIGTERM, which ends without saving, gives way to the one below. Tried
with Lightning 2.6 and torchdata.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader


class LeaveWhenTold(Callback):
    """On SIGTERM: save after the step that is under way, and end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = False

    def on_train_start(self, trainer, module) -> None:
        # Here, because the trainer has set its own by now.
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number, frame) -> None:
        self.asked = True

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index) -> None:
        # A signal does not reach all processes in the same step: any of them is enough.
        if trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            draft = self.path.with_suffix(".draft")
            trainer.save_checkpoint(draft)
            if trainer.is_global_zero:
                draft.replace(self.path)
            trainer.should_stop = True
            self.asked = True


class Model(lightning.LightningModule):
    """Replace by your own."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.step_seconds = step_seconds

    def training_step(self, batch, batch_index):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layers(inputs), targets)
        time.sleep(self.step_seconds)
        print(f"step {self.global_step + 1} loss {loss.item():.6f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main() -> int:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    options.add_argument("--save-every", type=int, default=100, help="steps")
    given = options.parse_args()

    lightning.seed_everything(1, workers=True)
    inputs = torch.randn(given.steps * 32, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))

    folder = Path(os.environ.get("CHECKPOINT_DIR", "."))
    path = folder / "leaving.ckpt"
    now_and_then = ModelCheckpoint(
        folder,
        filename="regular",
        every_n_train_steps=given.save_every,
        enable_version_counter=False,
    )
    leaving = LeaveWhenTold(path)
    trainer = lightning.Trainer(
        max_steps=given.steps,
        default_root_dir=folder,
        callbacks=[now_and_then, leaving],
        plugins=[LightningEnvironment()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    saved = [one for one in (path, folder / "regular.ckpt") if one.exists()]
    newest = max(saved, key=lambda one: one.stat().st_mtime, default=None)
    # A plain DataLoader would begin its epoch anew: batches twice, and others never.
    loader = StatefulDataLoader(data, batch_size=32)
    trainer.fit(Model(given.step_seconds), loader, ckpt_path=newest)
    return 128 + signal.SIGTERM if leaving.asked else 0


if __name__ == "__main__":
    sys.exit(main())
