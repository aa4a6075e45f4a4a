"""The result as text, as JSON, and for scripts/records/fidelity.md."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.testbed.place import DemoError
from scripts.tools.fidelity import compare
from scripts.tools.fidelity.calibrate import Calibration
from scripts.tools.fidelity.compare import Ended, Figure
from scripts.tools.fidelity.setting import Setting
from slurm_tiresias import __version__

DOCUMENT = ROOT / "scripts" / "records" / "fidelity.md"
BEGIN, END = "<!-- results: written by scripts/dev fidelity --record -->", "<!-- end of results -->"
COLUMNS = ("", "real", "simulated", "least", "most", "off", "may be off")


@dataclass(frozen=True)
class Result:
    """Both sides of one comparison."""

    setting: Setting
    calibration: Calibration
    real: tuple[Ended, ...]
    simulations: tuple[tuple[Ended, ...], ...]
    machine: str
    faults: tuple[str, ...] = field(default=())

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(compare.figures(self.real, self.simulations, self.setting.factor))

    @property
    def holds(self) -> bool:
        """Whether every figure is within its band, and no real job has faults."""
        return not self.faults and all(figure.holds for figure in self.figures)

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": asdict(self.setting),
            "machine": self.machine,
            "calibration": asdict(self.calibration),
            "timing": asdict(self.setting.timing(self.calibration)),
            "figures": [
                asdict(figure)
                | {"simulated": figure.simulated, "off": figure.off, "holds": figure.holds}
                for figure in self.figures
            ],
            "average_distance": compare.average_distance(self.real, self.simulations),
            "jobs": list(self._jobs()),
            "faults": list(self.faults),
            "holds": self.holds,
        }

    def _jobs(self) -> Iterator[dict[str, Any]]:
        for real, *simulated in zip(self.real, *self.simulations, strict=True):
            yield {
                "job": real.job.job_id,
                "gpus": real.job.gpus,
                "duration_s": real.job.duration_s,
                "jct_s": real.jct_s,
                "end_s": real.end_s,
                "preemptions": real.preemptions,
                "simulated_jct_s": [theirs.jct_s for theirs in simulated],
            }


def machine(slurm: str) -> str:
    """Return a description of the machine and Slurm of the real run."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return (
        f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}, "
        f"{slurm}, slurm-tiresias {__version__}"
    )


def as_text(result: Result) -> str:
    """Return all figures in columns, for a terminal."""
    rows = [COLUMNS, *map(cells, result.figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(["", *lines, "", *sentences(result)])


def cells(figure: Figure) -> tuple[str, ...]:
    off = "" if figure.off is None else f"{figure.off:+.1%}"
    if not figure.holds:
        off += " !"
    return (
        figure.name,
        amount(figure.real, figure.unit),
        *(
            amount(value, figure.unit)
            for value in (figure.simulated, min(figure.simulations), max(figure.simulations))
        ),
        off,
        "" if figure.band is None else f"{figure.band:.0%}",
    )


def amount(value: float, unit: str) -> str:
    return f"{value:.2f} {unit}" if unit else f"{value:.3g}"


def sentences(result: Result) -> Iterator[str]:
    setting, calibration = result.setting, result.calibration
    timing = setting.timing(calibration)
    distance = compare.average_distance(result.real, result.simulations)
    yield f"Job by job the completion times lie {distance:.1%} of the average apart."
    yield (
        f"Measured before: {calibration.idle_starts} jobs on idle GPUs started after "
        f"{calibration.idle_start_s:.2f} s, {calibration.preemptions} that others had to leave for "
        f"after {calibration.preempting_start_s:.2f} s, {calibration.vacating_s:.2f} s after those "
        f"had stopped; who had to leave ran again after {calibration.restart_s:.2f} s."
    )
    yield (
        f"The simulator was given an interval of {timing.interval_s:g} s, a requeue delay of "
        f"{timing.requeue_delay_s:.2f} s, a preempting delay of {timing.preempting_delay_s:.2f} s "
        f"and {setting.load_s / setting.factor:g} s a restart; it ran {len(result.simulations)} "
        "times, the first job coming at another moment of the interval each time."
    )
    yield from (f"FAULT: {fault}" for fault in result.faults)


def record(result: Result, document: Path = DOCUMENT) -> None:
    """Replace the result for the same run in the document."""
    try:
        text = document.read_text()
        before, rest = text.split(BEGIN)
        results, after = rest.split(END)
    except (OSError, ValueError) as error:
        raise DemoError(f"{document} has no section for results: {error}") from error
    sections = dict(re.findall(r"^(## .*)\n((?:(?!## ).*\n)*)", results, re.MULTILINE))
    sections[heading(result.setting)] = "\n" + "\n".join(as_markdown(result)) + "\n\n"
    written = "".join(f"{title}\n{body}" for title, body in sorted(sections.items()))
    document.write_text(f"{before}{BEGIN}\n\n{written}{END}{after}")


def heading(setting: Setting) -> str:
    return (
        f"## {setting.jobs} jobs of seed {setting.seed} on {setting.nodes} nodes of "
        f"{setting.gpus} GPUs, {setting.factor:g} times as fast, order {setting.order}"
    )


def as_markdown(result: Result) -> Iterator[str]:
    yield f"{time.strftime('%Y-%m-%d', time.gmtime())}, {result.machine}."
    yield ""
    yield markdown_row(COLUMNS)
    yield markdown_row(("---", *["---:"] * (len(COLUMNS) - 1)))
    yield from (markdown_row(cells(figure)) for figure in result.figures)
    yield ""
    yield " ".join(sentences(result))


def markdown_row(texts: tuple[str, ...]) -> str:
    return f"| {' | '.join(texts)} |"
