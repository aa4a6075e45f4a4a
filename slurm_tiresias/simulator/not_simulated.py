"""Which settings of a site have no effect in a simulation, although they have one in reality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

from slurm_tiresias.settings import Config

ALL: Final = ("*",)

NOT_SIMULATED: Final[Mapping[str, Sequence[str]]] = {
    "manage": ALL,
    "interactive": ALL,
    "idle_gpus": ALL,
    "failures": ALL,
    "priority": ALL,
    "preemption": ("drilled_min_run_s", "checkpoint", "max_grace_s"),
}
"""By table, the settings that decide which jobs start, or when, and are not simulated.

The others are simulated, or say where files are, how Slurm is reached and the like."""


def not_simulated(config: Config) -> list[str]:
    """Return the settings that differ from their defaults and are not simulated, as they are named
    in the configuration file."""
    return [
        f"{table}.{name}"
        for table, names in NOT_SIMULATED.items()
        for name in settings_of(table, names)
        if getattr(getattr(config, table), name) != getattr(getattr(Config(), table), name)
    ]


def settings_of(table: str, names: Sequence[str]) -> Sequence[str]:
    """Return these settings of a table, or all of them."""
    return [field.name for field in fields(getattr(Config(), table))] if names is ALL else names
