"""Generate docs/reference/cli.md, the page of all commands, from their help.

python3 -m scripts.tools.packages.reference
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from scripts.tools.packages.commands import commands, exit_codes, inner_commands
from slurm_tiresias.cli.options import CONFIG_VARIABLE, DEFAULT_CONFIG, PROGRAM

HEAD = f"""\
# Commands

Every command of `{PROGRAM}` with all its options. This page is written from the program
(`scripts/dev generate`), like the manual pages that the packages bring along (`man {PROGRAM}`).

The configuration is `{DEFAULT_CONFIG}`, unless `{CONFIG_VARIABLE}` or
`--config FILE` names another file; every command that reads it takes that option, before or after
its name. Every command takes `-h`."""

OF_ALL = ("The configuration file.", "Show this message and exit.")
"""The meanings of options that the head of the page explains."""


def page() -> str:
    """Return the whole page in Markdown."""
    every = commands()
    return "\n".join([HEAD, *_codes(), *_each(every)]) + "\n"


def _codes() -> Iterator[str]:
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {_cell(meaning)} |" for code, meaning in exit_codes())


def _each(every: list[click.Context]) -> Iterator[str]:
    for context in every:
        yield from ("", f"## {context.command_path}")
        text = inspect.cleandoc(context.command.help or "")
        yield from _paragraphs(text)
        usage = " ".join(context.command.collect_usage_pieces(context))
        yield from ("", "```text", f"{context.command_path} {usage}", "```")
        yield from _options(context)
        if context.parent is not None:
            yield from _commands_of(context)
        if context.command.epilog:
            yield from _paragraphs(inspect.cleandoc(context.command.epilog))


def _commands_of(group: click.Context) -> Iterator[str]:
    paths = [one.command_path for one in inner_commands(group)]
    if paths:
        links = (f"[`{path}`](#{path.replace(' ', '-')})" for path in paths)
        yield from ("", f"Its commands: {', '.join(links)}.")


def _options(context: click.Context) -> Iterator[str]:
    records = (option.get_help_record(context) for option in context.command.get_params(context))
    rows = [
        f"| {_code(names)} | {_cell(meaning)} |"
        for names, meaning in filter(None, records)
        if meaning and meaning not in OF_ALL
    ]
    if rows:
        yield from ("", "| option | meaning |", "|---|---|", *rows)


def _paragraphs(text: str) -> Iterator[str]:
    """Split text into paragraphs like click; those that begin with \\b keep their lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        yield ""
        if paragraph.lstrip().startswith("\b"):
            kept = paragraph.split("\b", 1)[1].strip("\n").split("\n")
            yield from ("```text", *(line.rstrip() for line in kept), "```")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", r"\|")


def _escaped(text: str) -> str:
    """Escape what Markdown would interpret, except between backticks."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", piece)
        for piece in pieces
    )


if __name__ == "__main__":
    sys.stdout.write(page())
