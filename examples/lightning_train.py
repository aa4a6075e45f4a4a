#!/usr/bin/env python3
"""Lightning: on SIGTERM it saves after the current step and exits; restarted, it resumes there.

    python3 examples/lightning_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/lightning_train.py --steps 1000

Tried with Lightning 2.6 and torchdata 0.11.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from slurm_tiresias.job.lightning import Preemptible


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


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    lightning.seed_everything(1, workers=True)
    inputs = torch.randn(given.steps * 32, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))

    checkpoint = Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoint.ckpt")
    trainer = lightning.Trainer(
        max_steps=given.steps,
        callbacks=[Preemptible(checkpoint)],
        plugins=[LightningEnvironment()],  # Slurm requeues the job, Lightning must not
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # A plain DataLoader would begin its epoch anew: batches twice, and others never.
    loader = StatefulDataLoader(data, batch_size=32, num_workers=2)
    resumed = checkpoint if checkpoint.exists() else None
    trainer.fit(Model(given.step_seconds), loader, ckpt_path=resumed)


if __name__ == "__main__":
    main()
