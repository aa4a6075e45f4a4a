#!/usr/bin/env python3
"""PyTorch: on SIGTERM it saves after the current step and exits; restarted, it resumes there.

    python3 examples/pytorch_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/pytorch_train.py --steps 1000
    tiresias-job run -- torchrun --nproc-per-node=2 examples/pytorch_train.py --steps 1000

As one process, or as several under srun or torchrun. Tried with PyTorch 2.14.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

from slurm_tiresias import job
from slurm_tiresias.job.torch import any_rank


class Batches(Dataset):
    """The data of each step: the same at every repetition. Replace it by your own."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        source = torch.Generator().manual_seed(step * 1000 + self.rank)
        inputs = torch.randn(32, 8, generator=source)
        return inputs, inputs.sum(dim=1, keepdim=True)


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID", "0"))
    ranks = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    if ranks > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=ranks)  # GPUs: "nccl"
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    parts = {"model": model, "optimizer": optimizer}

    checkpoint = Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoint.pt")
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        done = state.pop("step")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    print(f"begins after step {done}", flush=True)

    def save(step: int) -> None:
        if rank == 0:
            with job.writing(checkpoint) as file:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "step": step}, file)

    steps = job.steps(given.steps, save, done, every_min=10, agree=any_rank)
    batches = DataLoader(
        Batches(rank), batch_size=None, sampler=range(done, given.steps), num_workers=2
    )
    for step, (inputs, targets) in zip(steps, batches, strict=False):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        time.sleep(given.step_seconds)
        if rank == 0:
            print(f"step {step + 1} loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
