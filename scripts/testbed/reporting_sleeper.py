#!/usr/bin/env python3
"""A job like sleeper.sh that also reports its progress with the job library.

reporting_sleeper.py LIBRARY SLEEPER JOURNAL WORK_US LOAD_US
LIBRARY is a folder with the package slurm_tiresias, SLEEPER is sleeper.sh.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

STEPS = 10_000
REPORT_EVERY_S = 0.5
MICRO = 1_000_000


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
    library, *program = sys.argv[1:]
    sys.path.insert(0, library)
    from slurm_tiresias import job

    return follow(REPORT_EVERY_S, lambda step: job.report(step, STEPS), program)


if __name__ == "__main__":
    sys.exit(main())
