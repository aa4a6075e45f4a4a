"""Accuracy of the estimated time left of jobs that report progress, on a real cluster."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import click

from scripts.testbed import progress_channel
from scripts.testbed.jobs import accounted, slurm
from scripts.testbed.place import (
    CONTROLLER_CONFIG,
    Place,
    bring_up,
    prepare,
    say,
    start_controller,
    stop,
)
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.progress.folder import LOOK_EVERY_S
from slurm_tiresias.status import published

SEED = 1
JOBS = 100
SHARES = (0.1, 0.5)
"""The fractions of a job's work at which its estimate is recorded."""

LASTS_S = (150.0, 300.0)
SHIP_EVERY_S = 2.0

TRAIN = """
import random, sys, time
from slurm_tiresias import job
total, step_s, seed, steady = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)
spread = 0.05 if steady == "True" else 0.2
time.sleep(5)  # imports, data
for step in range(1, total + 1):
    time.sleep(step_s * chance.lognormvariate(-spread**2 / 2, spread) + 3 * step_s * (step == 1))
    job.report(step, total)
    if steady != "True" and step % max(1, total // 20) == 0:
        job.saving()
        time.sleep(2 * step_s)
        job.saved(step)
"""
"""The durations of a job's steps: the first is slow. The others vary by 5 % if ``steady``, else by
20 %, with a save as long as two steps after each twentieth of the work."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The published estimate of a job when this fraction of its work was done."""

    at_s: float
    likely_s: float
    least_s: float
    most_s: float


def is_steady(job_id: str) -> bool:
    """Whether the job's steps are steady; they are in every other job."""
    return int(job_id) % 2 == 0


@click.command("eta")
def eta() -> None:
    """Accuracy of the estimated time left, on a real cluster (ten minutes)."""
    with tempfile.TemporaryDirectory(prefix="st-eta-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder / "p")
        try:
            service = _start(place, folder)
            try:
                jobs = _submit(place, folder)
                estimates = _watched(place, jobs)
            finally:
                service.terminate()
                service.wait()
            ended_s = {row.job_id: row.ended_s for row in accounted(place, set(jobs))}
        finally:
            stop(place)
    _write(estimates, ended_s)


def _start(place: Place, folder: Path) -> subprocess.Popen[bytes]:
    config = CONTROLLER_CONFIG.replace("[60.0]", "[1e9]")
    prepare(place, config + f'\n[profiler]\ncollect_dir = "{folder}/collect"\n')
    (folder / "train.py").write_text(TRAIN)
    plugstack = progress_channel.set_up(folder)
    bring_up(place, "--nodes=15", "--gpus=4", f"--conf-file={plugstack}")
    start_controller(place)
    return progress_channel.start_service(folder, SHIP_EVERY_S)


def _submit(place: Place, folder: Path) -> Sequence[str]:
    """Submit jobs of two and a half to five minutes, of 100 to 5,000 steps."""
    chance = random.Random(SEED)
    jobs = []
    for number in range(JOBS):
        total = round(math.exp(chance.uniform(math.log(100), math.log(5000))))
        step_s = chance.uniform(*LASTS_S) / total
        train = f"{sys.executable} {folder}/train.py {total} {step_s} {number}"
        train += f" {is_steady(str(number + 1))}"
        jobs.append(
            slurm(
                place,
                *("sbatch", "--parsable", "--gpus=1", "--mem=10", "--output=/dev/null"),
                *("--wrap", f"exec env PYTHONPATH={folder}/{progress_channel.LIBRARY} {train}"),
            ).strip()
        )
    return jobs


def _watched(place: Place, jobs: Sequence[str]) -> Mapping[tuple[str, float], Estimate]:
    """Return the published estimate of each job at each of these fractions of its work."""
    found: dict[tuple[str, float], Estimate] = {}
    alive = set(jobs)
    while alive:
        time.sleep(0.5)
        state = published.read(place.state)
        shown = {job.job_id: job for job in state.jobs}
        for key in alive & shown.keys():
            told = shown[key].progress
            if told is None or told.total is None or told.remaining_s is None:
                continue
            for share in SHARES:
                if (key, share) not in found and told.step >= share * told.total:
                    least_s, most_s = told.remaining_least_s, told.remaining_most_s
                    assert least_s is not None
                    assert most_s is not None
                    found[key, share] = Estimate(state.at_s, told.remaining_s, least_s, most_s)
        queued = set(slurm(place, "squeue", "-h", "-o", "%i").split())
        if len(alive) // 20 != len(alive & queued) // 20:
            say(f"{len(alive & queued)} of {len(jobs)} jobs have not ended")
        alive &= queued
    return found


def _write(estimates: Mapping[tuple[str, float], Estimate], ended_s: Mapping[str, float]) -> None:
    rows = []
    for steady, share in ((steady, share) for steady in (True, False) for share in SHARES):
        of_share = [
            (key, one)
            for (key, at), one in estimates.items()
            if at == share and is_steady(key) == steady
        ]
        truths_s = [ended_s[key] - one.at_s for key, one in of_share]
        pairs = [(one, truth_s) for (_, one), truth_s in zip(of_share, truths_s, strict=True)]
        errors = [abs(one.likely_s - truth_s) / truth_s for one, truth_s in pairs]
        widths = [(one.most_s - one.least_s) / one.likely_s for one, _ in pairs]
        # Accounting counts in whole seconds.
        held = sum(one.least_s - 1 <= truth_s <= one.most_s + 1 for one, truth_s in pairs)
        rows.append(
            [
                "steady" if steady else "uneven",
                f"{100 * share:g} %",
                f"{len(pairs)}",
                f"{100 * median(errors):.1f} %",
                f"{100 * quantiles(errors, n=10)[8]:.1f} %",
                f"{sum(error <= 0.05 for error in errors)}",
                f"{held}",
                f"{100 * median(widths):.0f} %",
            ]
        )
    header = (
        *("steps", "work done", "jobs", "error, median", "90th percentile"),
        *("within 5 %", "truth in the range", "its width, median"),
    )
    text = (
        f"{JOBS} jobs of {LASTS_S[0]:g} to {LASTS_S[1]:g} s on a real cluster of 15 x 4 GPUs, that "
        "report 100 to 5,000 steps with the library for jobs. Steady steps differ by 5 %, uneven "
        "ones by 20 %, with a save of two steps after each twentieth of the work; the first is "
        "four times as long. The error is that of the time that is left. Reports are sent every "
        f"{SHIP_EVERY_S:g} s and read every {LOOK_EVERY_S:g} s: at 10 % three to six have come."
    )
    record("Estimates of the time that is left", markdown(header, rows), text)
