#!/usr/bin/env python3
"""A job like sleeper.sh that also tells its progress: by the job library, or as programs print it.

progress_sleeper.py HOW SLEEPER JOURNAL WORK_US LOAD_US
HOW is a folder with the package slurm_tiresias, or the number of a function in ``KINDS``. SLEEPER
is sleeper.sh. Slurm runs a copy of this file, so it imports nothing that lies beside it.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

STEPS = 10_000
EPOCHS = 20
PER_EPOCH = STEPS // EPOCHS
REPORT_EVERY_S = 0.5
PRINT_EVERY_S = 0.25
MICRO = 1_000_000


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


def follow(every_s: float, tell: Callable[[int], object], program: Sequence[str]) -> int:
    """Run ``program``, sleeper.sh with its arguments; ``tell`` its step of ``STEPS`` meanwhile."""
    _, journal, work_us, load_us = program
    written = Path(journal)
    lines = written.read_text().splitlines() if written.exists() else []
    done_s = int(lines[-1].split()[2]) / MICRO if lines else 0.0
    work_s = int(work_us) / MICRO
    began_s = time.monotonic() + (int(load_us) / MICRO if lines else 0.0)
    # The sleeper gets the signal too, and it is the one that stops cleanly.
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = subprocess.Popen(program)
    while True:
        try:
            return child.wait(every_s)
        except subprocess.TimeoutExpired:
            now_s = done_s + max(0.0, time.monotonic() - began_s)
            tell(min(STEPS, int(STEPS * now_s / work_s)))


def main() -> int:
    how, *program = sys.argv[1:]
    if how.isdecimal():
        printed = KINDS[int(how)]
        return follow(PRINT_EVERY_S, lambda step: print(printed(step), end="", flush=True), program)
    sys.path.insert(0, how)
    from slurm_tiresias import job

    return follow(REPORT_EVERY_S, lambda step: job.report(step, STEPS), program)


if __name__ == "__main__":
    sys.exit(main())
