"""The program with some of its constants replaced, for tests that cannot wait as long as sites.

TIRESIAS_TEST_CONSTANTS="COMMAND_TIMEOUT_S=2 HOST=one" python -m scripts.testbed.constants ...
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

COMMAND = (sys.executable, "-m", "scripts.testbed.constants")
VARIABLE = "TIRESIAS_TEST_CONSTANTS"
HOST = "HOST"
"""The name of the host, for two controllers on one machine."""

FEATURES = "slurm_tiresias.core.features"
MODULES: Mapping[str, str] = {
    "COMMAND_TIMEOUT_S": "slurm_tiresias.controller.driver",
    "BUDGET_WINDOW_S": f"{FEATURES}.losses",
    "CHARGE_WINDOW_S": f"{FEATURES}.charge",
    "FIRST_TIER_WAIT_S": f"{FEATURES}.save_due",
    "GITTINS_SAMPLES": f"{FEATURES}.gittins",
    "KEPT_TIMES": f"{FEATURES}.min_run",
    "LEAST_QUIET_S": "slurm_tiresias.progress.reported_run",
    "LEAST_S": "slurm_tiresias.progress.output",
    "LOOK_EVERY_S": "slurm_tiresias.progress.folder",
    "LONGEST_MIN_RUN_S": f"{FEATURES}.min_run",
    "MAX_VICTIMS": f"{FEATURES}.victim_rate",
    "PICTURE_EVERY_S": "slurm_tiresias.forecast.process",
    "NEW_OUTPUT_S": f"{FEATURES}.hung",
    "NEW_S": f"{FEATURES}.hung",
    "PROMOTE_FLOOR_S": f"{FEATURES}.promotion",
    "REPORT_EVERY_S": f"{FEATURES}.claims",
    "RETRY_AFTER_S": "slurm_tiresias.core.lifecycle.nomination",
    "SAVE_GRACE_S": "slurm_tiresias.progress.saving",
    "SIGN_OF_LIFE_S": "slurm_tiresias.progress.node",
    "START_BOUND_S": "slurm_tiresias.core.lifecycle.nomination",
    "WAIT_FOR_SAVE_S": f"{FEATURES}.save_due",
}
"""Where each constant is defined, and looked up whenever it is needed."""


@contextmanager
def replaced(values: Mapping[str, float]) -> Iterator[None]:
    """Give these constants other values for a while."""
    before = {name: getattr(import_module(MODULES[name]), name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def in_environment(values: Mapping[str, object]) -> dict[str, str]:
    """Return the environment in which ``replace_from_environment`` sets these values."""
    return {VARIABLE: " ".join(f"{name}={value}" for name, value in values.items())}


def replace_from_environment() -> None:
    said = dict(pair.split("=") for pair in os.environ.get(VARIABLE, "").split())
    if host := said.pop(HOST, ""):
        socket.gethostname = lambda: host
    _set({name: float(value) for name, value in said.items()})


def _set(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        setattr(import_module(MODULES[name]), name, value)


if __name__ == "__main__":
    from slurm_tiresias.cli.begin import main

    replace_from_environment()
    main()
