#!/usr/bin/env python3
"""A job of the demo: it sleeps through its steps, saves, and resumes from its last save.

training.py FOLDER STEPS STEP_S SAVE_EVERY_S [LIBRARY]

Without the folder LIBRARY of the job library it is a program that knows nothing of preemption: it
saves at intervals, and SIGTERM ends it. Its journal has a line for each start, step and save.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path


def main() -> None:
    folder, steps, step_s, save_every_s = Path(sys.argv[1]), *map(float, sys.argv[2:5])
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint"

    def note(event: str, step: int) -> None:
        with (folder / "journal").open("a") as journal:
            journal.write(f"{event} {step}\n")

    def save(step: int) -> None:
        draft = folder / "draft"
        draft.write_text(str(step))
        draft.replace(checkpoint)
        note("saved", step)

    def alone(done: int) -> Iterator[int]:
        saved_s = time.monotonic()
        for step in range(done, int(steps)):
            yield step
            if time.monotonic() - saved_s >= save_every_s or step + 1 == steps:
                save(step + 1)
                saved_s = time.monotonic()

    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    note("start", done)
    if sys.argv[5:]:
        sys.path.insert(0, sys.argv[5])
        from slurm_tiresias import job

        numbers = job.steps(int(steps), save, done, every_min=save_every_s / 60)
    else:
        numbers = alone(done)
    for step in numbers:
        time.sleep(step_s)
        note("step", step + 1)


if __name__ == "__main__":
    main()
