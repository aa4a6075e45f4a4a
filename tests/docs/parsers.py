"""Whether a command line is one that the program would take, asked of its own parser."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.testbed.cluster.main import parser
from scripts.tools.demo.main import demo
from scripts.tools.main import dev
from slurm_tiresias.cli.main import cli

ROOT = Path(__file__).parents[2]


def complaint(words: Sequence[str]) -> str:
    """What the parser has against these words; nothing if it takes them.

    Shell scripts hand theirs on to pytest or take few; their options have to stand in their text.
    """
    program, *arguments = words
    if program == "tiresias-slurm":
        return _of_click(cli, arguments)
    if "scripts/" not in program:
        return ""
    name = program.rpartition("/")[2]
    if not (ROOT / "scripts" / name).exists():
        return f"there is no scripts/{name}"
    if name in ("dev", "demo"):
        return _of_click(dev if name == "dev" else demo, arguments)
    if name == "cluster":
        return _of_argparse(parser(), arguments)
    return _of_text(name, arguments)


def _of_click(command: click.Command, arguments: Sequence[str]) -> str:
    try:
        _resolve(command, list(arguments), None)
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:
        pass
    return ""


def _resolve(command: click.Command, arguments: list[str], parent: click.Context | None) -> None:
    context = command.make_context(command.name, arguments, parent=parent)
    if not isinstance(command, click.Group):
        return
    # Their name begins with an underscore since click 8.2.
    protected = getattr(context, "_protected_args", None) or context.args[:0]
    rest = [*protected, *context.args]
    if not rest:
        if not command.invoke_without_command:
            raise click.UsageError("a command is missing")
        return
    _, inner, left = command.resolve_command(context, rest)
    assert inner is not None
    _resolve(inner, left, context)


def _of_argparse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> str:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(arguments)
    except SystemExit:
        return said.getvalue().strip() or "it ends at once"
    return ""


def _of_text(script: str, arguments: Sequence[str]) -> str:
    text = (ROOT / "scripts" / script).read_text()
    if "pytest" in text:
        return ""
    missing = [each for each in arguments if each.startswith("--") and each not in text]
    return f"scripts/{script} knows no {missing[0]}" if missing else ""


def is_a_command(words: Sequence[str]) -> bool:
    """Whether ``tiresias-slurm`` or ``scripts/dev`` has a command of these names.

    Arguments that it needs may be missing.
    """
    command: click.Command = cli if words[0] == "tiresias-slurm" else dev
    for word in words[1:]:
        if not isinstance(command, click.Group):
            return all(_is_known(command, each) for each in words if each.startswith("-"))
        inner = command.get_command(click.Context(command), word)
        if inner is None:
            return False
        command = inner
    return True


def _is_known(command: click.Command, option: str) -> bool:
    known = {name for each in command.params for name in each.opts}
    return re.split("=", option)[0] in known
