#!/usr/bin/env python3
"""Keras: on SIGTERM it saves after the current step and exits; restarted, it resumes there.

    KERAS_BACKEND=torch python3 examples/keras_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/keras_train.py --steps 1000

Tried with Keras 3.15 on PyTorch and on JAX.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import numpy as np

from slurm_tiresias.job.keras import fit

STEPS_PER_EPOCH = 10


class Batches(keras.utils.PyDataset):
    """The batch of an index is always the same. Replace by your own."""

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __getitem__(self, index: int):
        inputs = np.random.default_rng(index).normal(size=(32, 8)).astype("float32")
        return inputs, inputs.sum(axis=1, keepdims=True)


class Printing(keras.callbacks.Callback):
    """Shows each step with the loss of its batch."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.step_seconds = step_seconds
        self.inputs, self.targets = Batches()[STEPS_PER_EPOCH]

    def on_train_batch_end(self, batch, logs=None):
        outputs = keras.ops.convert_to_numpy(self.model(self.inputs))
        step = int(self.model.optimizer.iterations)
        print(f"step {step} loss {np.mean((outputs - self.targets) ** 2):.6f}", flush=True)
        time.sleep(self.step_seconds)


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(32, "relu"), layers.Dropout(0.1), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    fit(
        model,
        Batches(),
        Path(os.environ.get("CHECKPOINT_DIR", "."), "checkpoints"),
        epochs=given.steps // STEPS_PER_EPOCH,
        callbacks=[Printing(given.step_seconds)],
        verbose=0,
    )


if __name__ == "__main__":
    main()
