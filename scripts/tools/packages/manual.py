"""Generate the manual pages from the help of commands and the descriptions of settings.

python3 -m scripts.tools.packages.manual FOLDER
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import click

from scripts.tools.packages.commands import commands, exit_codes, inner_commands, write_files
from slurm_tiresias import __version__
from slurm_tiresias.cli.config import limits_of, tables, toml
from slurm_tiresias.cli.options import CONFIG_VARIABLE, DEFAULT_CONFIG, PROGRAM
from slurm_tiresias.job import LEFT, channel, command

DAEMON = f"{PROGRAM}-controller"
CONFIG_PAGE = "tiresias.toml"
STATE_DIR = "/var/lib/slurm-tiresias"
DOCS = "/usr/share/doc/slurm-tiresias"
FILES = {
    DEFAULT_CONFIG: f"The configuration, see {CONFIG_PAGE}(5).",
    f"{STATE_DIR}/state.json": "What the controller published last, for status and explain.",
    f"{STATE_DIR}/ledger.sqlite": "What each managed job has used; the controller's own.",
    f"{STATE_DIR}/profiles.sqlite": "What is known of models; the controller's own.",
    f"{STATE_DIR}/profiles-published.sqlite": "A copy of it, for all users.",
    DOCS: "More documentation.",
}
SIGNALS = {
    "SIGTERM, SIGINT": "It ends after the present step. Jobs keep the priorities that they have, "
    "and Slurm goes on by these; to give the jobs back first, call tiresias-slurm hand-back.",
    "SIGKILL": "Does no harm: what it intended is in the ledger, and the next one carries on.",
}

JOB_CODES = {
    str(command.CANNOT_RUN): "run: the program cannot be run.",
    str(command.NOT_FOUND): "run: there is no such program.",
    str(LEFT): "run: the program was told to leave, and has saved.",
}
JOB_ENVIRONMENT = {
    channel.FILE_VARIABLE: "The file for the reports, which the SPANK plugin has made for the job.",
    f"{channel.WAY_VARIABLE}={channel.BY_COMMENT}": "Where there is no such file, reports go into "
    "the comment of the job, behind the user's own words, and rarely: some 25 times in a day.",
}

_ROFF = str.maketrans(
    {
        "\\": r"\(rs",
        "-": r"\-",
        "'": r"\(aq",
        "`": r"\(ga",
        "^": r"\(ha",
        "~": r"\(ti",
        '"': r"\(dq",
    }
)


def section_of(page: str) -> int:
    """Return the manual section of a page: 8 for the daemon, 5 for the file, else 1."""
    return {DAEMON: 8, CONFIG_PAGE: 5}.get(page, 1)


def escaped(text: str) -> str:
    """Escape a line of text for the formatter."""
    printable = "".join(one if one.isprintable() else " " for one in text)
    safe = printable.translate(_ROFF)
    return rf"\&{safe}" if safe.startswith(".") else safe


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of every page."""
    for context in commands():
        name = _name(context)
        yield f"{name}.{section_of(name)}", _text(_command_page(context))
    yield f"{command.PROGRAM}.1", _text(_job_page(command.parser()))
    yield f"{CONFIG_PAGE}.5", _text(_config_page())


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _command_page(context: click.Context) -> Iterator[str]:
    command = context.command
    name = _name(context)
    summary, _, more = inspect.cleandoc(command.help or "").partition("\n\n")
    yield from _head(name, " ".join(summary.split()))
    yield ".SH SYNOPSIS"
    yield rf"\fB{escaped(context.command_path)}\fR"
    yield escaped(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs("\n\n".join(filter(None, (summary, more))))
    yield from _options(context)
    yield from _listed("COMMANDS", _summaries(context))
    if command.epilog:
        yield ".SH NOTES"
        yield from _paragraphs(inspect.cleandoc(command.epilog))
    if name == DAEMON:
        yield from _listed("SIGNALS", SIGNALS.items())
    if name in (PROGRAM, DAEMON):
        yield from _listed("EXIT STATUS", exit_codes())
        yield from _listed("ENVIRONMENT", [(CONFIG_VARIABLE, "The configuration file.")])
        yield from _listed("FILES", FILES.items())
    yield from _see_also(name, context)


def _job_page(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _head(parser.prog, "progress and saves of a program in a Slurm job")
    inner = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    yield ".SH SYNOPSIS"
    for number, (name, one) in enumerate(inner.choices.items()):
        if number:
            yield ".br"
        arguments = " ".join(str(action.metavar) for action in one._actions if action.metavar)
        yield rf"\fB{escaped(f'{parser.prog} {name}')}\fR {escaped(arguments)}"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(f"{parser.description}\n\n{parser.epilog}")
    yield from _listed(
        "COMMANDS",
        (
            (f"{name} {action.metavar}", f"{one.description} {action.metavar}: {action.help}.")
            for name, one in inner.choices.items()
            for action in one._actions
            if action.metavar
        ),
    )
    yield from _listed("EXIT STATUS", [("0", "Done."), ("2", "Wrong use."), *JOB_CODES.items()])
    yield from _listed("ENVIRONMENT", JOB_ENVIRONMENT.items())
    yield from _listed("FILES", [(DOCS, FILES[DOCS])])
    yield ".SH SEE ALSO"
    yield _references([PROGRAM])


def _config_page() -> Iterator[str]:
    yield from _head(CONFIG_PAGE, "configuration of Tiresias on Slurm")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(
        "A file in TOML, https://toml.io. Every setting may be left out and then stands at its "
        "default. tiresias-slurm config check says what is wrong with a file, tiresias-slurm "
        "config example prints one. The controller reads it when it starts."
    )
    for name, table, settings in tables():
        yield f".SH [{escaped(name)}]"
        yield from _paragraphs(inspect.getdoc(table) or "")
        for field in settings:
            yield ".TP"
            yield rf"\fB{escaped(field.name)}\fR = {escaped(toml(field.default))}"
            yield escaped(field.metadata["doc"])
            if limits := limits_of(field):
                yield ".br"
                yield escaped(f"{limits[0].upper()}{limits[1:]}.")
    yield from _listed("FILES", [(DEFAULT_CONFIG, "Where it is looked for.")])
    yield ".SH SEE ALSO"
    yield _references([PROGRAM, DAEMON, f"{PROGRAM}-config"])


def _head(name: str, summary: str) -> Iterator[str]:
    date = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.fromtimestamp(int(date), UTC) if date else datetime.now(UTC)
    title = escaped(name.upper() if section_of(name) != 5 else name)
    version = escaped(f"slurm-tiresias {__version__}")
    yield f'.TH "{title}" "{section_of(name)}" "{day:%Y-%m-%d}" "{version}"'
    yield ".SH NAME"
    yield rf"{escaped(name)} \- {escaped(summary.rstrip('.'))}"


def _paragraphs(text: str) -> Iterator[str]:
    """Split text into paragraphs like click; those that begin with \\b keep their lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip("\n"))):
        if number:
            yield ".PP"
        if paragraph.lstrip().startswith("\b"):
            yield ".nf"
            # All spaces of a line are kept, leading ones too.
            kept = paragraph.split("\b", 1)[1].strip("\n").split("\n")
            yield from (rf"\&{escaped(line.rstrip())}" for line in kept)
            yield ".fi"
        else:
            yield escaped(" ".join(paragraph.split()))


def _options(context: click.Context) -> Iterator[str]:
    records = (option.get_help_record(context) for option in context.command.get_params(context))
    yield from _listed("OPTIONS", filter(None, records))


def _summaries(context: click.Context) -> Iterator[tuple[str, str]]:
    for inner in inner_commands(context):
        name = _name(inner)
        yield f"{name}({section_of(name)})", inner.command.get_short_help_str(limit=1000)


def _listed(title: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, (term, meaning) in enumerate(entries):
        if not number:
            yield f".SH {title}"
        yield ".TP"
        yield rf"\fB{escaped(term)}\fR"
        yield escaped(" ".join(meaning.split())) or r"\&"


def _see_also(name: str, context: click.Context) -> Iterator[str]:
    others = [_name(context.parent)] if context.parent else []
    yield ".SH SEE ALSO"
    yield _references([*others, *(p for p in (DAEMON, CONFIG_PAGE) if p != name)])


def _references(names: Iterable[str]) -> str:
    return ", ".join(rf"\fB{escaped(name)}\fR({section_of(name)})" for name in names)


if __name__ == "__main__":
    write_files(pages())
