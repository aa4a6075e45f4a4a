"""Pages such as scripts/records/benchmarks.md, in which every command writes one section."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from scripts import ROOT
from slurm_tiresias import __version__


@dataclass(frozen=True)
class Document:
    """A page whose sections are each written by one command."""

    path: Path
    head: str


RELIABILITY = Document(
    ROOT / "scripts" / "records" / "reliability.md",
    """# Reliability

Each section is written by the command it names, on a real Slurm; what stands here was counted, not
typed. [operate.md](../../docs/how-to/operate.md) has what the controller does on failures.
""",
)
SLURM_RELEASES = Document(
    ROOT / "scripts" / "records" / "releases.md",
    """# Releases of Slurm

`scripts/dev matrix` makes a Debian for each release of Slurm, builds the SPANK plugin there, and
runs this project's tests with that Debian's Python on real clusters. With the driver that speaks to
Slurm by its own commands all tests are run; with pyslurm those that need a cluster.
""",
)
BENCHMARKS = Document(
    ROOT / "scripts" / "records" / "benchmarks.md",
    """# Benchmarks

Each section is written by the command it names; what stands here was measured, not typed.
""",
)


def write_section(title: str, command: str, body: str, document: Document = BENCHMARKS) -> None:
    """Replace the section of this title, or append it."""
    _put(title, f"## {title}\n\n    {command}\n\n{_made_with()}\n\n{body.strip()}\n", document)


def called() -> str:
    """Return the command line of the command that runs."""
    context = click.get_current_context()
    return " ".join([context.command_path, *_options(context)])


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value is None or value is False:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            shown = (one.name if one.is_file() else "DIRECTORY") if isinstance(one, Path) else one
            yield parameter.opts[0] if one is True else f"{parameter.opts[0]} {shown}"


def _put(title: str, section: str, document: Document) -> None:
    text = document.path.read_text() if document.path.exists() else document.head
    found = _find(title, text)
    if found:
        text = text[: found.start()] + section + "\n" + text[found.end() :]
    else:
        text = text.rstrip("\n") + "\n\n" + section
    document.path.write_text(text.rstrip("\n") + "\n")


def _find(title: str, text: str) -> re.Match[str] | None:
    return re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, with the first column aligned left and the others right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of_texts(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table aligned left, whose cells may contain any text on one line."""
    escaped = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    lines = [f"| {' | '.join(line)} |" for line in (header, *escaped)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median (sign test, normal approximation)."""
    ordered = sorted(values)
    from_end = max(0, int((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2))
    return ordered[from_end], ordered[-1 - from_end]


def _made_with() -> str:
    today = datetime.now(UTC).date().isoformat()
    cores = os.cpu_count() or 1
    return (
        f"Written {today} by version {__version__}, Python {platform.python_version()}, "
        f"{cores} cores ({_processor()})."
    )


def _processor() -> str:
    known = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return known[1] if known else platform.machine()
