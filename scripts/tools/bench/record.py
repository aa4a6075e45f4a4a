"""How a benchmark writes its section: what every one of them does in the same way."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import click

from scripts.tools.document import called, write_section

TRACE = click.Path(path_type=Path, exists=True, dir_okay=False)
Command = TypeVar("Command", bound=Callable[..., None])
Case = TypeVar("Case")
Result = TypeVar("Result")


def record(title: str, *parts: str) -> None:
    """Write the section of this title, under the command line that was called, and print it."""
    body = "\n\n".join(filter(None, parts))
    write_section(title, called(), body)
    click.echo(body)


def count_option(
    name: str, default: int, most: int, least: int = 1
) -> Callable[[Command], Command]:
    """Return an option for a number of repetitions."""
    bounds = click.IntRange(least, most)
    return click.option(f"--{name}", default=default, show_default=True, type=bounds)


def in_processes(
    run: Callable[[Case], Result], cases: Sequence[Case], workers: int | None = None
) -> Mapping[Case, Result]:
    """Run every case, in one process a core."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(cases, pool.map(run, cases), strict=True))


def in_its_own_process(run: Callable[[Case], Result], case: Case) -> Result:
    return in_processes(run, [case], 1)[case]
