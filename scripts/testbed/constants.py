"""The program with some of its constants replaced, for tests that cannot wait as long as sites.

TIRESIAS_TEST_CONSTANTS="START_BOUND_S=8" python -m scripts.testbed.constants controller
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

from slurm_tiresias.cli.begin import main

VARIABLE = "TIRESIAS_TEST_CONSTANTS"
FEATURES = "slurm_tiresias.core.features"
MODULES: Mapping[str, str] = {
    "CHARGE_WINDOW_S": f"{FEATURES}.charge",
    "GITTINS_SAMPLES": f"{FEATURES}.gittins",
    "PROMOTE_FLOOR_S": f"{FEATURES}.promotion",
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


def in_environment(values: Mapping[str, float]) -> dict[str, str]:
    """Return the environment in which ``replace_from_environment`` sets these values."""
    return {VARIABLE: " ".join(f"{name}={value}" for name, value in values.items())}


def replace_from_environment() -> None:
    said = (pair.partition("=") for pair in os.environ.get(VARIABLE, "").split())
    _set({name: float(value) for name, _, value in said})


def _set(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        setattr(import_module(MODULES[name]), name, value)


if __name__ == "__main__":
    replace_from_environment()
    main()
