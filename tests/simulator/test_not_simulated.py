"""A simulation names the settings of a site that it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.not_simulated import ALL, NOT_SIMULATED, not_simulated, settings_of

SIMULATED: Mapping[str, Sequence[str]] = {
    "policy": ALL,
    "placement": ALL,
    "preemption": ("min_run_s", "budget_share"),
    "controller": ("interval_s",),
}
"""The settings that act as in the controller, by table."""

OF_THE_PROGRAM = {"profiler", "slurm", "http", "controller"}
"""Tables of which no setting decides on a job, except those that are named."""


def test_each_setting_that_decides_on_jobs_is_simulated_or_named() -> None:
    for table in fields(Config):
        known = [
            name
            for listed in (SIMULATED, NOT_SIMULATED)
            for name in settings_of(table.name, listed.get(table.name, ()))
        ]
        every = {field.name for field in fields(getattr(Config(), table.name))}
        assert len(known) == len(set(known)) and every.issuperset(known)
        assert every == set(known) or table.name in OF_THE_PROGRAM


def test_settings_that_differ_from_their_defaults_are_named_if_they_have_no_effect() -> None:
    tables = {
        "policy": {"order": "entry"},
        "preemption": {"min_run_s": 7, "checkpoint": "USR1@33"},
        "interactive": {"gpus_per_user": 0},
        "controller": {"mode": "enforce", "interval_s": 3},
    }
    assert not_simulated(parse(tables)) == [*("interactive.gpus_per_user", "preemption.checkpoint")]
    assert not_simulated(Config()) == []
