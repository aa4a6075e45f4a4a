"""``tiresias-slurm config``: check and show the configuration, and an example with all texts."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import click

from slurm_tiresias.cli.options import config_option, config_path, json_option, takes_config
from slurm_tiresias.cli.screen import show_or_json, stdout
from slurm_tiresias.config import load
from slurm_tiresias.gpu_hours import exact_gpu_hours
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.declare import Setting
from slurm_tiresias.text import count, printable

COMMENT_WIDTH = 88


@click.group(no_args_is_help=False)
@config_option
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.argument("file", type=click.Path(readable=False), required=False, metavar="[FILE]")
@config_option
def check(file: str | None) -> None:
    """Check a configuration file: FILE, or the one that would be used."""
    path = Path(file) if file else config_path()
    checked = load(path)
    click.echo(f"{printable(str(path))}: ok")
    screen = stdout()
    screen.show(screen.prose(_summary(checked), indent=""))


@config.command()
@json_option
@takes_config
def show(config: Config, as_json: bool) -> None:
    """Print the value in force of every setting; defaults are marked."""
    show_or_json(as_json, lambda: dataclasses.asdict(config), lambda _: effective(config))


@config.command()
def example() -> None:
    """Print a configuration file with every setting explained and at its default."""
    click.echo("\n".join(example_lines()))


def _summary(config: Config) -> str:
    partitions = ", ".join(map(printable, config.manage.partitions)) or "no partition"
    limits = ", ".join(map(exact_gpu_hours, config.policy.thresholds_gpu_s))
    policy, controller = config.policy, config.controller
    return (
        f"Manages {partitions} by {policy.name}, order {policy.order}, "
        f"{count(config.policy.tier_count, 'tier')} (split at {limits}), "
        f"every {controller.interval_s:g} s, in {controller.mode} mode."
    )


def effective(config: Config) -> Iterator[str]:
    """Yield the configuration in effect as TOML, with every setting written out."""
    default = Config()
    for index, table in enumerate(dataclasses.fields(Config)):
        if index:
            yield ""
        yield f"[{table.name}]"
        section, usual = getattr(config, table.name), getattr(default, table.name)
        for field in dataclasses.fields(section):
            value = getattr(section, field.name)
            mark = "  # default" if value == getattr(usual, field.name) else ""
            yield f"{field.name} = {toml(value)}{mark}"


def toml(value: Any) -> str:
    """Return a setting's value in TOML, in printable characters only."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        plain = (c if c.isascii() and c.isprintable() else f"\\U{ord(c):08X}" for c in escaped)
        return f'"{"".join(plain)}"'
    return repr(value)


def tables() -> Iterator[tuple[str, type, tuple[Setting, ...]]]:
    """Yield each table of the file: its name, its class and its settings."""
    types = get_type_hints(Config)
    for field in dataclasses.fields(Config):
        table = types[field.name]
        yield field.name, table, dataclasses.fields(table)


def example_lines(
    said: Mapping[tuple[str, str], tuple[str, Sequence[str]]] | None = None,
) -> Iterator[str]:
    """Yield the example file. Everything is commented out, so that later defaults take effect.

    ``said`` maps a setting's table and name to the value to write instead, in TOML ("": keep the
    default, commented out), and to comments to add.
    """
    yield "# Configuration of tiresias-slurm. Every setting is listed with its default, commented"
    yield "# out: uncomment it to change it. Check with: tiresias-slurm config check FILE"
    for name, table, settings in tables():
        yield ""
        yield from commented(inspect.getdoc(table) or "")
        yield f"[{name}]"
        for field in settings:
            yield ""
            yield from commented(field.metadata["doc"])
            if limits := limits_of(field):
                yield from commented(f"{limits[0].upper()}{limits[1:]}.")
            value, comments = (said or {}).get((name, field.name), ("", ()))
            for comment in comments:
                yield from commented(comment)
            yield f"{field.name} = {value}" if value else f"#{field.name} = {toml(field.default)}"


def commented(text: str) -> list[str]:
    """Return a sentence as wrapped comment lines."""
    return textwrap.wrap(
        text, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def limits_of(field: Setting) -> str:
    """Return the unit and range of a setting in words; "" if it has neither."""
    unit, low, high = (field.metadata[key] for key in ("unit", "minimum", "maximum"))
    choices = field.metadata["choices"]
    parts = [
        unit,
        f"at least {low:g}" if low is not None else "",
        f"at most {high:g}" if high is not None else "",
        f"one of {', '.join(choices)}" if choices else "",
    ]
    return ", ".join(filter(None, parts))
