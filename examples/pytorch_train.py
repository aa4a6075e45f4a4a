#!/usr/bin/env python3
"""PyTorch: told to leave, it saves after the step it is in; started again, it goes on from there.

    python3 examples/pytorch_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/pytorch_train.py --steps 1000

As one process, or as several under srun. Tried with PyTorch 2.13.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn

asked_to_leave = False
asked_to_save = False


def leave(number, frame):
    global asked_to_leave
    asked_to_leave = True


def save_soon(number, frame):
    global asked_to_save
    asked_to_save = True


def anybody(flag: bool) -> bool:
    """Whether any process was asked: a signal does not reach all of them in the same step."""
    if not distributed.is_initialized():
        return flag
    one_or_zero = torch.tensor(int(flag))
    distributed.all_reduce(one_or_zero, distributed.ReduceOp.MAX)
    return bool(one_or_zero)


def save(path: Path, state: dict) -> None:
    """Beside the old one, then renamed into its place: a kill in the middle leaves that whole."""
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a step: the same whenever it is done. Replace by your own loader."""
    source = torch.Generator().manual_seed(step * 1000 + rank)
    inputs = torch.randn(32, 8, generator=source)
    return inputs, inputs.sum(dim=1, keepdim=True)


def main() -> int:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    options.add_argument("--save-every", type=int, default=100, help="steps")
    given = options.parse_args()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGUSR1, save_soon)

    rank = int(os.environ.get("SLURM_PROCID", "0"))
    ranks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    if ranks > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=ranks)  # GPUs: "nccl"
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())

    folder = Path(os.environ.get("CHECKPOINT_DIR", "."))
    path = folder / "checkpoint.pt"
    step = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print(f"begins after step {step}", flush=True)

    while step < given.steps:
        inputs, targets = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(given.step_seconds)
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)

        global asked_to_save
        leaving = anybody(asked_to_leave)
        saving = leaving or anybody(asked_to_save) or step % given.save_every == 0
        if saving or step == given.steps:
            asked_to_save = False
            if rank == 0:
                save(
                    path,
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                )
        if leaving:
            return 128 + signal.SIGTERM
    return 0


if __name__ == "__main__":
    sys.exit(main())
