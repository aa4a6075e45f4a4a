"""All commands and exit codes, obtained from the program itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurm_tiresias import errors
from slurm_tiresias.cli.doctor import ERRORS, WARNINGS
from slurm_tiresias.cli.drill import FAILED
from slurm_tiresias.cli.main import OUTPUT_CLOSED, cli
from slurm_tiresias.cli.options import PROGRAM
from slurm_tiresias.errors import INTERRUPTED

OTHER_CODES = {
    WARNINGS: "The doctor found something that deserves a warning.",
    ERRORS: "The doctor found something that is an error.",
    FAILED: "A trial of the drill failed.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
    OUTPUT_CLOSED: "The reader of the output has closed it.",
}
"""Exit codes that belong to no error class."""


def write_files(files: Iterable[tuple[str, str]]) -> None:
    """Write files, by name and text, into the folder given on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files:
        (folder / name).write_text(text, encoding="utf-8")


def commands() -> list[click.Context]:
    """Return every command as a context, each after its group."""
    return list(_commands(click.Context(cli, info_name=PROGRAM, **cli.context_settings)))


def inner_commands(context: click.Context) -> Iterator[click.Context]:
    """Return the commands of a group; none if it is not a group."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield click.Context(command, info_name=name, parent=context)


def _commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    for inner in inner_commands(context):
        yield from _commands(inner)


def exit_codes() -> Iterator[tuple[str, str]]:
    """Yield the exit codes in order, each described by the first error class that has it.

    Every command is loaded first, since some define additional error classes and exit codes.
    """
    commands()
    yield "0", "Done."
    known = dict(OTHER_CODES)
    for error in _errors(errors.TiresiasError):
        meaning = " ".join((inspect.getdoc(error) or "").partition("\n\n")[0].split())
        known.setdefault(error.exit_code, meaning)
    known[errors.TiresiasError.exit_code] = "Any other error."
    yield from ((str(code), meaning) for code, meaning in sorted(known.items()))


def _errors(root: type[errors.TiresiasError]) -> Iterator[type[errors.TiresiasError]]:
    yield root
    for error in root.__subclasses__():
        yield from _errors(error)
