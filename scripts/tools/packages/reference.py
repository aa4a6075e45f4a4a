"""Generate docs/reference/cli.md, the page of all commands, from their help.

python3 -m scripts.tools.packages.reference
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from scripts.tools.document import table_of_texts
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

LONG_ROW = 41
"""Shorter rows are repeated for each command that has the option."""


def page() -> str:
    """Return the whole page in Markdown."""
    codes = table_of_texts(
        ("code", "meaning"), [(code, _cell(text)) for code, text in exit_codes()]
    )
    return "\n\n".join([HEAD, f"## Exit codes\n\n{codes}", *_each()]) + "\n"


def _each() -> Iterator[str]:
    shown: dict[tuple[str, str], str] = {}
    for context in commands():
        if isinstance(context.command, click.Group):
            # Each of its commands has a section, and the head of the page what all have in common.
            continue
        yield f"## {context.command_path}"
        yield from _paragraphs(inspect.cleandoc(context.command.help or ""))
        usage = context.command.collect_usage_pieces(context)
        if usage != ["[OPTIONS]"]:
            yield f"```text\n{' '.join([context.command_path, *usage])}\n```"
        if rows := list(_options(context, shown)):
            yield table_of_texts(("option", "meaning"), rows)
        if context.command.epilog:
            yield from _paragraphs(inspect.cleandoc(context.command.epilog))


def _options(
    context: click.Context, shown: dict[tuple[str, str], str]
) -> Iterator[tuple[str, str]]:
    """Yield the options; ``shown`` has those so far, with the first command of each."""
    repeated: dict[str, list[str]] = {}
    for option in context.command.get_params(context):
        names, meaning = option.get_help_record(context) or ("", "")
        if not meaning or meaning in OF_ALL:
            continue
        row = f"`{names}`", _cell(meaning)
        first = shown.setdefault(row, context.command_path)
        if first == context.command_path or len(" | ".join(row)) < LONG_ROW:
            yield row
        else:
            repeated.setdefault(first, []).append(f"`{names.split()[0].rstrip(',')}`")
    for first, again in repeated.items():
        yield ", ".join(again), f"as for `{first}`"


def _paragraphs(text: str) -> Iterator[str]:
    """Split text into paragraphs like click; those that begin with \\b keep their lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.lstrip().startswith("\b"):
            kept = paragraph.split("\b", 1)[1].strip("\n").split("\n")
            yield "\n".join(("```text", *(line.rstrip() for line in kept), "```"))
        else:
            yield _cell(paragraph)


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Escape what Markdown would interpret, except between backticks."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", piece)
        for piece in pieces
    )


if __name__ == "__main__":
    sys.stdout.write(page())
