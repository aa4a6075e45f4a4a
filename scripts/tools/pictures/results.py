"""The picture of the results: 480 jobs under the best baseline and with Tiresias, simulated."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scripts.tools.pictures.svg import FAINT, Drawing

COMMAND = ("simulate", "--limits", "users")
REPORTS = {"Tiresias": "", "half of the jobs report": "50", "all jobs report": "100"}
"""The name of each line, and its option ``--reports``."""

BASELINE = "best baseline"
COLOURS = dict(zip((BASELINE, *REPORTS), ("#bc4c00", "#0969da", "#8250df", "#1a7f37"), strict=True))
SHARES = tuple(range(1, 101))
WIDTH, HEIGHT = 720, 372


def measured() -> dict[str, Any]:
    """Simulate the jobs, and return what is drawn, with the commands that give it.

    Each line has ``jct_s``: the completion times within which 1, 2, …, 100 % of the jobs end.
    """
    lines: dict[str, Any] = {}
    for name, share in REPORTS.items():
        command = [*COMMAND, *(("--reports", share) if share else ())]
        results, jct_s = _simulated(command)
        if BASELINE not in lines:
            lines[BASELINE] = _line(command, results["best"], jct_s["best"])
            setting = results["best"]
        lines[name] = _line(command, results["tiresias-l"], jct_s["tiresias-l"])
    facts = {name: setting[name] for name in ("workload", "jobs", "cluster", "gpus")}
    return {**facts, "best_baseline": setting["baseline"], "lines": lines}


def _simulated(arguments: Sequence[str]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the JSON and the completion times of each policy."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "jobs.csv"
        command = [sys.executable, "-m", "slurm_tiresias.cli", *arguments]
        made = subprocess.run(
            [*command, "--json", "--csv", str(table)], stdout=subprocess.PIPE, check=True
        )
        jct_s = dict(iter(pd.read_csv(table).groupby("policy")["jct_s"]))
    return {one["policy"]: one for one in json.loads(made.stdout)}, jct_s


def _line(command: Sequence[str], result: Mapping[str, Any], jct_s: Any) -> dict[str, Any]:
    within_s = np.percentile(jct_s, SHARES, method="inverted_cdf")
    fair, long_wide = result["over_fair_share"], result["bins"]["LL"]
    return {
        "command": f"tiresias-slurm {' '.join(command)}",
        "average_jct_s": round(result["avg_jct_s"], 1),
        "median_jct_s": round(result["median_jct_s"], 1),
        "long_wide_jct_s": round(long_wide["avg_jct_s"], 1),
        "over_fair_share": {
            "median": round(fair["median"], 2),
            "p99": round(fair["p99"], 1),
            "jobs_above_twice": round(fair["above_twice_share"], 4),
        },
        "jct_s": [round(float(value), 1) for value in within_s],
    }


def drawn(found: Mapping[str, Any]) -> str:
    """Return the picture for light pages."""
    title = f"{found['jobs']} jobs of the paper's mix on {found['gpus']} GPUs, simulated"
    drawing = Drawing(WIDTH, HEIGHT, title)
    drawing.text((14, 22), title, size=14, bold=True)
    lines = found["lines"]
    _curves(drawing, lines)
    averages = {name: line["average_jct_s"] for name, line in lines.items()}
    long_wide = {name: line["long_wide_jct_s"] for name, line in lines.items()}
    above = {name: line["over_fair_share"]["jobs_above_twice"] for name, line in lines.items()}
    _bars(drawing, 64, "Average completion time", averages, _minutes)
    _bars(drawing, 164, "Long wide jobs, average completion time", long_wide, _minutes)
    _bars(drawing, 264, "Jobs above twice their fair-share time", above, _percent)
    nodes, _, gpus = found["cluster"].partition("x")
    setting = (
        f"{nodes} nodes of {gpus} GPUs, default configuration, limits as users set them, lost work "
        f"counted; best baseline: {found['best_baseline']}"
    )
    drawing.text((14, HEIGHT - 8), setting, size=12, colour=FAINT)
    return drawing.svg()


def _curves(drawing: Drawing, lines: Mapping[str, Mapping[str, Any]]) -> None:
    left, right, top, bottom = 56.0, 400.0, 72.0, 300.0
    least_s, most_s = 30.0, 36_000.0

    def x_of(seconds: float) -> float:
        share = math.log(max(seconds, least_s) / least_s) / math.log(most_s / least_s)
        return left + (right - left) * min(1.0, share)

    def y_of(percent: float) -> float:
        return bottom - (bottom - top) * percent / 100

    drawing.text((14, 50), "Jobs that have ended, in %", colour=FAINT)
    for percent in (0, 25, 50, 75, 100):
        drawing.rule((left, y_of(percent)), (right, y_of(percent)), faint=True)
        drawing.text((left - 8, y_of(percent) + 4), f"{percent}", anchor="end", colour=FAINT)
    for seconds, name in ((60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h")):
        drawing.rule((x_of(seconds), bottom), (x_of(seconds), bottom + 5))
        drawing.text((x_of(seconds), bottom + 19), name, anchor="middle", colour=FAINT)
    below = "time since submission (logarithmic)"
    drawing.text(((left + right) / 2, bottom + 40), below, anchor="middle", colour=FAINT)
    for name, line in lines.items():
        points = [(x_of(line["jct_s"][0]), y_of(0))]
        for seconds, percent in zip(line["jct_s"], SHARES, strict=True):
            points.append((x_of(seconds), points[-1][1]))
            points.append((x_of(seconds), y_of(percent)))
        drawing.curve(points, COLOURS[name])
    for name, at, percent, aside, anchor in (
        (BASELINE, 29, 27, 10, "start"),
        ("Tiresias", 61, 60, -14, "end"),
    ):
        place = (x_of(lines[name]["jct_s"][at]) + aside, y_of(percent))
        drawing.text(place, name, anchor=anchor, colour=COLOURS[name], bold=True)


def _bars(
    drawing: Drawing,
    top: float,
    title: str,
    values: Mapping[str, float],
    written: Callable[[float], str],
) -> None:
    left, right = 584.0, 660.0
    drawing.text((428, top - 8), title, bold=True)
    most = max(values.values())
    for number, (name, value) in enumerate(values.items()):
        y, width = top + number * 17, max(1.5, (right - left) * value / most)
        drawing.text((left - 8, y + 10), name, anchor="end", size=12, colour=COLOURS[name])
        drawing.bar((left, y), (width, 12.0), COLOURS[name])
        drawing.text((left + width + 6, y + 10), written(value), size=12)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"
