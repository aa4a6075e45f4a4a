#!/usr/bin/env python3
"""A job like sleeper.sh that prints its progress as training programs do.

printing_sleeper.py KIND SLEEPER JOURNAL WORK_US LOAD_US
KIND is the number of a function in ``KINDS``, SLEEPER is sleeper.sh.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.testbed.reporting_sleeper import STEPS, follow

EPOCHS = 20
PER_EPOCH = STEPS // EPOCHS
PRINT_EVERY_S = 0.25


def bar(done: int, total: int) -> str:
    """Return a bar as tqdm draws it."""
    filled = "█" * (10 * done // total)
    return f"\r{100 * done // total:3d}%|{filled:<10}| {done}/{total} [00:07<01:02, 12.31it/s]"


def in_epoch(step: int) -> tuple[int, int]:
    """Return the epoch, from 1, and its step."""
    epoch = min(EPOCHS - 1, step // PER_EPOCH)
    return epoch + 1, step - epoch * PER_EPOCH


def nested(step: int) -> str:
    epoch, inner = in_epoch(step)
    return f"Epoch {epoch}/{EPOCHS}\n{bar(inner, PER_EPOCH)}"


def trainer(step: int) -> str:
    epoch, _ = in_epoch(step)
    return f"{{'loss': 0.41, 'learning_rate': 5e-05, 'epoch': {epoch}.0}}\n{bar(step, STEPS)}"


def keras(step: int) -> str:
    epoch, inner = in_epoch(step)
    return f"Epoch {epoch}/{EPOCHS}\n\r {inner}/{PER_EPOCH} ━━━━━━━━━━ 3s 6ms/step - loss: 0.4100\n"


def epoch_and_step(step: int) -> str:
    epoch, inner = in_epoch(step)
    return f"Epoch [{epoch}/{EPOCHS}], Step [{inner}/{PER_EPOCH}], Loss: 0.4100\n"


def megatron(step: int) -> str:
    return (
        f" iteration {step:8d}/{STEPS:8d} | consumed samples: {step * 256:12d} | "
        "elapsed time per iteration (ms): 81.2 | learning rate: 1.5E-04 | lm loss: 2.41E+00 |\n"
    )


KINDS: Sequence[Callable[[int], str]] = (
    lambda step: bar(step, STEPS),
    nested,
    trainer,
    keras,
    lambda step: f"step {step}/{STEPS}\n",
    epoch_and_step,
    lambda step: f"Iter {step} of {STEPS}: loss 0.41\n",
    megatron,
)


def main() -> int:
    kind, *program = sys.argv[1:]
    printed = KINDS[int(kind)]
    return follow(PRINT_EVERY_S, lambda step: print(printed(step), end="", flush=True), program)


if __name__ == "__main__":
    sys.exit(main())
