"""How a benchmark writes its section: what every one of them does in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click

from scripts.tools.document import write_section

TRACE = click.Path(path_type=Path, exists=True, dir_okay=False)
Command = TypeVar("Command", bound=Callable[..., None])

_NOT_SHOWN = frozenset({"workers"})
"""Options that change no result."""


def record(title: str, *parts: str) -> None:
    """Write the section of this title, under the command line that was called, and print it."""
    body = "\n\n".join(filter(None, parts))
    write_section(title, _called(), body)
    click.echo(body)


def count_option(
    name: str, default: int, most: int, least: int = 1
) -> Callable[[Command], Command]:
    """Return an option for a number of repetitions."""
    bounds = click.IntRange(least, most)
    return click.option(f"--{name}", default=default, show_default=True, type=bounds)


def _called() -> str:
    context = click.get_current_context()
    return " ".join(["scripts/dev bench", str(context.info_name), *_options(context)])


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value is None or value is False or parameter.name in _NOT_SHOWN:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            shown = (one.name if one.is_file() else "DIRECTORY") if isinstance(one, Path) else one
            yield parameter.opts[0] if one is True else f"{parameter.opts[0]} {shown}"
