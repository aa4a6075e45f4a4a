"""The modules that commands import: commands that only show something must start quickly."""

from __future__ import annotations

import sys

import click
import pytest

from slurm_tiresias.cli.main import COMMANDS, cli
from tests.cli.running import Site
from tests.cli.states import busy_state

HEAVY = (
    *("numpy", "pandas", "matplotlib", "jinja2", "prometheus_client", "rich.console"),
    *("slurm_tiresias.core.features.tiers", "slurm_tiresias.controller.run"),
    "slurm_tiresias.simulator.run",
)
"""Each takes 50 ms to half a second to load."""

LIGHT = ("config", "explain", "history", "ledger", "metrics", "nudge", "pause", "report", "status")


def loaded(site: Site, *arguments: str) -> set[str]:
    """Return the modules that a call imports, from Python's own log."""
    command = (sys.executable, "-X", "importtime", "-m", "slurm_tiresias.cli")
    said = site.spawn(*arguments, command=command).stderr
    lines = (line.split("|") for line in said.splitlines() if line.startswith("import time:"))
    found = {words[2].strip() for words in lines if len(words) == 3}
    assert "slurm_tiresias.cli.main" in found, said
    return found


def heavy_ones(modules: set[str]) -> list[str]:
    return [name for name in HEAVY if any(m == name or m.startswith(f"{name}.") for m in modules)]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_programs_help_loads_no_command(live_site: Site, option: str) -> None:
    modules = loaded(live_site, option)
    assert heavy_ones(modules) == []
    assert [
        name for name, (module, _) in COMMANDS.items() if f"slurm_tiresias.cli.{module}" in modules
    ] == []


@pytest.mark.parametrize("command", LIGHT)
def test_the_help_of_a_reading_command_loads_no_heavy_module(live_site: Site, command: str) -> None:
    assert heavy_ones(loaded(live_site, command, "--help")) == []


@pytest.mark.parametrize("arguments", [("history", "12"), ("report",), ("status",)], ids=" ".join)
def test_heavy_modules_are_loaded_only_after_the_controller_has_answered(
    live_site: Site, arguments: tuple[str, ...]
) -> None:
    live_site.publish(busy_state())
    assert heavy_ones(loaded(live_site, *arguments)) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_first_sentence_of_each_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    assert COMMANDS[name][1] == command.get_short_help_str(limit=500)


def test_commands_are_listed_by_name() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)
