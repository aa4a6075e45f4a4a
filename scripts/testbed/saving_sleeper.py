#!/usr/bin/env python3
"""A job that sleeps instead of working, saves periodically and reports each save with the job
library.

saving_sleeper.py LIBRARY EVERY_US JOURNAL WORK_US LOAD_US LIBRARY is a folder with the package
slurm_tiresias; EVERY_US is the running time between two saves. The journal is that of sleeper.sh,
with a line for each save. SIGTERM stops the job without a save; after a restart it loads for
LOAD_US and continues from the last save.
"""

import math
import signal
import sys
import time
from pathlib import Path

STEPS = 10_000
REPORT_EVERY_S = 0.5
MICRO = 1_000_000
STOPPED_STATUS = 143


class StoppedError(Exception):
    """Raised by SIGTERM."""


def stop(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise StoppedError


class Journal:
    """An entry of the journal: the event, its time, and the work done by then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def saved_s(self) -> float | None:
        """Return the work in the last save; None before the first run."""
        if not self._path.exists():
            return None
        saved_s = 0.0
        for line in self._path.read_text().splitlines():
            what, _, done_us = line.split()
            if what == "saved":
                saved_s = int(done_us) / MICRO
        return saved_s

    def note(self, what: str, done_s: float) -> None:
        with self._path.open("a") as file:
            file.write(f"{what} {round(time.time() * MICRO)} {round(done_s * MICRO)}\n")


def main() -> int:
    library, every_us, journal_path, work_us, load_us = sys.argv[1:]
    sys.path.insert(0, library)
    from slurm_tiresias import job

    every_s, work_s = int(every_us) / MICRO, int(work_us) / MICRO
    journal = Journal(Path(journal_path))
    before_s = journal.saved_s()
    from_s = done_s = before_s or 0.0
    signal.signal(signal.SIGTERM, stop)
    journal.note("started", done_s)
    job.saves_every(every_s / 60)
    job.resumed(int(STEPS * done_s / work_s))
    began_s = math.inf
    next_save_s = done_s + every_s
    try:
        if before_s is not None:
            time.sleep(int(load_us) / MICRO)
        began_s = time.monotonic()
        while done_s < work_s:
            until_s = min(done_s + REPORT_EVERY_S, next_save_s, work_s)
            time.sleep(max(0.0, began_s + until_s - from_s - time.monotonic()))
            done_s = from_s + time.monotonic() - began_s
            step = min(STEPS, int(STEPS * done_s / work_s))
            job.report(step, STEPS)
            if done_s >= next_save_s:
                journal.note("saved", done_s)
                job.saved(step)
                next_save_s += every_s
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except StoppedError:
        journal.note("stopped", from_s + max(0.0, time.monotonic() - began_s))
        return STOPPED_STATUS
    journal.note("ended", done_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
