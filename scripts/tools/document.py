"""Pages such as scripts/records/benchmarks.md, in which every command writes one section."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts import ROOT
from slurm_tiresias import __version__


@dataclass(frozen=True)
class Document:
    """A page whose sections are each written by one command."""

    path: Path
    head: str


BENCHMARKS = Document(
    ROOT / "scripts" / "records" / "benchmarks.md",
    """# Benchmarks

Each section is written by the command it names; what stands here was measured, not typed.
""",
)


def write_section(title: str, command: str, body: str, document: Document = BENCHMARKS) -> None:
    """Replace the section of this title, or append it."""
    _put(title, f"## {title}\n\n    {command}\n\n{_made_with()}\n\n{body.strip()}\n", document)


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
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
