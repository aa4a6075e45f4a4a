#!/usr/bin/env python3
"""Accelerate: on SIGTERM it saves after the current step and exits; restarted, it resumes there.

    python3 examples/accelerate_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/accelerate_train.py --steps 1000
    tiresias-job run -- accelerate launch --num_processes=2 examples/accelerate_train.py

Tried with Accelerate 1.15.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from slurm_tiresias import job
from slurm_tiresias.job.accelerate import Checkpoints


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(1)
    inputs = torch.randn(given.steps * 32 * accelerator.num_processes, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    # With a generator of its own a loader takes no random numbers from the dropout when it begins.
    loader = DataLoader(data, batch_size=32, num_workers=2, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    folder = Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoints")
    checkpoints = Checkpoints(accelerator, folder)
    done = checkpoints.restore()
    steps = job.steps(given.steps, checkpoints.save, done, agree=checkpoints.any_process)
    batches = accelerator.skip_first_batches(loader, done)
    for step, (batch, targets) in zip(steps, batches, strict=False):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), targets)
        accelerator.backward(loss)
        optimizer.step()
        time.sleep(given.step_seconds)
        if accelerator.is_main_process:
            print(f"step {step + 1} loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
