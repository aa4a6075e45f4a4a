#!/usr/bin/env python3
"""Hugging Face Trainer: on SIGTERM it saves after the current step, and resumes there.

    python3 examples/huggingface_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/huggingface_train.py --steps 1000

Tried with Transformers 5.23 and Accelerate 1.15.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from slurm_tiresias.job.transformers import Preemptible, last_checkpoint


class Examples(Dataset):
    """Replace by your own."""

    def __init__(self, count: int) -> None:
        source = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, 8, generator=source)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        inputs = self.inputs[number]
        return {"inputs": inputs, "labels": inputs.sum().unsqueeze(0)}


class Model(nn.Module):
    """Replace by your own."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.step_seconds = step_seconds

    def forward(self, inputs, labels):
        outputs = self.layers(inputs)
        time.sleep(self.step_seconds)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


class Printing(Trainer):
    """Shows each step with its loss."""

    def training_step(self, *arguments, **named):
        loss = super().training_step(*arguments, **named)
        print(f"step {self.state.global_step + 1} loss {loss.item():.6f}", flush=True)
        return loss


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    torch.manual_seed(1)
    folder = Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoints")
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=given.steps,
        per_device_train_batch_size=32,
        dataloader_num_workers=2,
        save_strategy="no",  # Preemptible says when
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Printing(
        Model(given.step_seconds),
        arguments,
        train_dataset=Examples(given.steps * 32),
        callbacks=[Preemptible()],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))


if __name__ == "__main__":
    main()
