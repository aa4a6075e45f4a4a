#!/usr/bin/env python3
"""JAX: on SIGTERM it saves after the current step and exits; restarted, it resumes there.

    python3 examples/jax_train.py --steps 1000
    sbatch examples/preemptible.sbatch examples/jax_train.py --steps 1000

The state is a tree of arrays, saved by Orbax. Tried with JAX 0.10 and Orbax 0.12.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from slurm_tiresias import job


def batch(step):
    """The data of a step: the same at every repetition. Replace it by your own loader."""
    inputs = jax.random.normal(jax.random.key(step), (32, 8))
    return inputs, inputs.sum(axis=1)


def loss(weights, inputs, targets):
    return jnp.mean((inputs @ weights - targets) ** 2)


@jax.jit
def trained(state, inputs, targets):
    """The state one step later: gradient descent with momentum. Replace by your own."""
    error, slope = jax.value_and_grad(loss)(state["weights"], inputs, targets)
    momentum = 0.9 * state["momentum"] + slope
    weights = state["weights"] - 0.01 * momentum
    return {"weights": weights, "momentum": momentum}, error


def main() -> None:
    options = argparse.ArgumentParser(description="Training that may be preempted.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--step-seconds", type=float, default=0.1, help="as if it were work")
    given = options.parse_args()

    folder = Path(os.environ.get("CHECKPOINT_DIR", ".")).absolute() / "checkpoints"
    state = {"weights": jnp.zeros(8), "momentum": jnp.zeros(8)}
    # A checkpoint has its own folder and counts once that has its final name.
    keep_two = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(folder, options=keep_two) as checkpoints:
        done = checkpoints.latest_step() or 0
        if done:
            state = checkpoints.restore(done, args=ocp.args.StandardRestore(state))
        print(f"begins after step {done}", flush=True)

        def save(step: int) -> None:
            checkpoints.save(step, args=ocp.args.StandardSave(state), force=True)
            # Orbax writes in the background: SIGKILL must not find it writing.
            checkpoints.wait_until_finished()

        for step in job.steps(given.steps, save, done, every_min=10):
            state, error = trained(state, *batch(step))
            time.sleep(given.step_seconds)
            print(f"step {step + 1} loss {error:.6f}", flush=True)


if __name__ == "__main__":
    main()
