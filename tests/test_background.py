"""Repeated work in a separate thread."""

from __future__ import annotations

import threading

from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.background import Background, running


def test_a_step_requested_early_does_not_wait_for_its_interval() -> None:
    stepped = threading.Semaphore(0)
    background = Background("a test", stepped.release, every_s=3600.0)
    with running(background):
        for _ in range(3):
            assert stepped.acquire(timeout=PATIENCE_S)
            background.step_soon(0.01)
