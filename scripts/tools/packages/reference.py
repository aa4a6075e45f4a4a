"""Generate docs/reference/cli.md, the page of all commands, from their help.

python3 -m scripts.tools.packages.reference
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from scripts.tools.packages.commands import commands, exit_codes
from slurm_tiresias.cli.options import CONFIG_VARIABLE, DEFAULT_CONFIG, PROGRAM

HEAD = f"""\
# Commands

Every command of `{PROGRAM}` with all its options. This page is generated from the program
(`scripts/dev generate`), as are the manual pages in the packages (`man {PROGRAM}`).

The configuration is `{DEFAULT_CONFIG}`, unless `{CONFIG_VARIABLE}` or
`--config FILE` names another file; every command that reads it takes that option, before or after
its name. Every command takes `-h`."""

OF_ALL = ("The configuration file.", "Show this message and exit.")
"""The meanings of options that the head of the page explains."""

LONG_ROW = 45
"""Shorter rows are repeated for each command that has the option."""


def page() -> str:
    """Return the whole page in Markdown."""
    every = commands()
    return "\n".join([HEAD, *_codes(), *_each(every)]) + "\n"


def _codes() -> Iterator[str]:
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {_cell(meaning)} |" for code, meaning in exit_codes())


def _each(every: list[click.Context]) -> Iterator[str]:
    shown: dict[str, str] = {}
    for context in every:
        if isinstance(context.command, click.Group):
            # Each of its commands has a section, and the head of the page what all have in common.
            continue
        text = inspect.cleandoc(context.command.help or "")
        yield from ("", f"## {context.command_path}", *_paragraphs(text))
        usage = context.command.collect_usage_pieces(context)
        if usage != ["[OPTIONS]"]:
            yield from ("", "```text", " ".join([context.command_path, *usage]), "```")
        yield from _options(context, shown)
        if context.command.epilog:
            yield from _paragraphs(inspect.cleandoc(context.command.epilog))


def _options(context: click.Context, shown: dict[str, str]) -> Iterator[str]:
    """Yield the table of options; ``shown`` has the long rows so far, by row, with the command."""
    rows, repeated = [], dict[str, list[str]]()
    for option in context.command.get_params(context):
        names, meaning = option.get_help_record(context) or ("", "")
        if not meaning or meaning in OF_ALL:
            continue
        row = f"| {_code(names)} | {_cell(meaning)} |"
        first = shown.setdefault(row, context.command_path)
        if first == context.command_path or len(row) < LONG_ROW:
            rows.append(row)
        else:
            repeated.setdefault(first, []).append(_code(names.split()[0].rstrip(",")))
    rows += [f"| {', '.join(names)} | as for `{first}` |" for first, names in repeated.items()]
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
