"""Recorded workloads: one module per format, and the choice between them.

A format has a name, a title, a test of a file's first line, and a loader. Loaders raise only
``TraceError``, whatever the file contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator.traces import (
    alibaba2020,
    alibaba2023,
    generic,
    helios,
    itp,
    philly,
    reading,
    sacct,
    swf,
)
from slurm_tiresias.simulator.workload import Workload

AUTO = "auto"
HEAD_BYTES = 65536
"""Maximum length of the first line of a trace, from which its format is detected."""


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format; ``fits`` gets the first line that is not blank."""

    name: str
    title: str
    fits: Callable[[str], bool]
    load: Callable[[Path], Workload]


FORMATS: Mapping[str, Format] = {
    module.NAME: Format(module.NAME, module.TITLE, module.fits, module.load)
    for module in (sacct, swf, philly, itp, helios, alibaba2020, alibaba2023, generic)
}
"""Formats by name, in the order in which they are tried; the most general one is last."""


def load_trace(path: Path, format: str = AUTO) -> Workload:  # noqa: A002
    """Load the jobs of a recorded trace.

    Raises ``UsageError`` for an unknown format and ``TraceError`` for an invalid file.
    """
    name = sniff(path) if format == AUTO else format
    if name not in FORMATS:
        raise UsageError(
            f"there is no trace format {name!r}", f"choose among {', '.join([AUTO, *FORMATS])}"
        )
    return FORMATS[name].load(path)


def sniff(path: Path) -> str:
    """Return the name of the format of a file or a folder of files."""
    if path.is_dir():
        return alibaba2020.NAME
    lines = enumerate(reading.head(path, HEAD_BYTES).split("\n"), start=1)
    line, first = next(((at, words.strip()) for at, words in lines if words.strip()), (1, ""))
    for name, known in FORMATS.items():
        if known.fits(first):
            return name
    raise reading.refusal(
        path,
        line,
        "the beginning matches no known trace format",
        f"give a header line that names the columns, or say which of {', '.join(FORMATS)} it is",
    )
