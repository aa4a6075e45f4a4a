"""The period from sbatch until a job runs on GPUs that a lower tier held, and its parts.

The cluster is always full of jobs that never end and soon fall into the lower tier, so each new
job preempts one of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import LoggedCycle, RealController, logged_cycles
from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.replay.cluster import with_local
from scripts.tools.document import markdown

NODES, GPUS = 4, 4
THRESHOLD_GPU_S = 2.0
POLL_INTERVAL_S = 2.0
JOB = """#!/bin/bash
trap 'echo "told $EPOCHREALTIME" >>"$1"; exit' TERM
echo "started $EPOCHREALTIME" >>"$1"
sleep infinity &
wait
"""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """One job for which another was preempted; times in seconds since the epoch."""

    called_s: float
    submitted_s: float
    started_s: float


Parts = Mapping[str, float]
"""The parts of one start by what they are, in seconds."""


@click.command("latency")
@count_option("preemptions", 200, 10000, 5)
def latency(preemptions: int) -> None:
    """The period from sbatch until a job runs on GPUs that a lower tier held."""
    nudged = _run(preemptions, nudges=True)
    polling = _run(preemptions, nudges=False)
    header = ("", "median, ms", "99th", "median, polling", "99th")
    rows = [
        (part, *(text for some in (nudged, polling) for text in _figures(some, part)))
        for part in nudged[0]
    ]
    text = (
        f"{markdown(header, rows)}\n\n{len(nudged)} preemptions each, one after the other, on "
        f"{NODES} nodes of {GPUS} GPUs: a job of one GPU comes to a cluster full of jobs of the "
        "lower tier. The first two columns are with the nudge of etc/job_submit.lua, the others "
        f"without, at an interval of {POLL_INTERVAL_S:g} s. Slurm must have tried the job before "
        "a victim is requeued; the controller looks after 50 ms, then ever more rarely."
    )
    record("Latency of a preemption", text)


def _figures(parts: Sequence[Parts], part: str) -> tuple[str, str]:
    values_s = [one[part] for one in parts]
    worst = statistics.quantiles(values_s, n=100, method="inclusive")[98]
    return f"{1000 * statistics.median(values_s):.0f}", f"{1000 * worst:.0f}"


def _run(preemptions: int, nudges: bool) -> list[Parts]:
    with short_folder() as folder:
        nudge = folder / "nudge"
        lua = folder / "job_submit.lua"
        text = (ROOT / "etc" / "job_submit.lua").read_text()
        lua.write_text(with_local(text, "nudge_file", f'"{nudge}"' if nudges else '""'))
        options = (
            *(f"--nodes={NODES}", f"--gpus={GPUS}", "--no-accounting"),
            *(f"--conf-file={lua}", "--slurm-conf-line=JobSubmitPlugins=lua"),
            "--slurm-conf-line=SchedulerParameters=disable_job_shrink,batch_sched_delay=1",
        )
        interval_s = 10.0 if nudges else POLL_INTERVAL_S
        settings: dict[str, dict[str, object]] = {
            "policy": {"thresholds_gpu_s": [THRESHOLD_GPU_S]},
            "preemption": {"min_run_s": 0.5},
            "controller": {"mode": "enforce", "interval_s": interval_s, "nudge_file": str(nudge)},
        }
        log = folder / "controller.log"
        with started_cluster(folder, *options) as cluster:
            controller = RealController(cluster, folder, settings, defaults={}, log_file=log)
            try:
                controller.start("--verbose")
                _fill(cluster, folder)
                preemptors = [_win(cluster, folder, n, preemptions) for n in range(preemptions)]
            finally:
                controller.end()
        cycles = logged_cycles(log.read_text())
    return [parts for preemptor in preemptors if (parts := _parts(preemptor, cycles))]


def _fill(cluster: RealCluster, folder: Path) -> None:
    (folder / "job").write_text(JOB)
    names = [f"first{number}" for number in range(NODES * GPUS)]
    for name in names:
        _submit(cluster, folder, name)
    cluster.wait_until(lambda: all(_moments(folder, name) for name in names), "all run")
    time.sleep(2 * THRESHOLD_GPU_S)  # until every job has attained the threshold


def _submit(cluster: RealCluster, folder: Path, name: str) -> None:
    asked = ("--gpus=1", "--mem=10", "--output=/dev/null", f"-J{name}")
    cluster.run("sbatch", *asked, str(folder / "job"), str(folder / f"{name}.journal"))


def _moments(folder: Path, name: str) -> list[float]:
    """Return the time at which the job started; empty until then."""
    journal = folder / f"{name}.journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith("started ")]


def _win(cluster: RealCluster, folder: Path, number: int, of: int) -> Preemptor:
    name = f"preemptor{number}"
    called_s = time.time()
    _submit(cluster, folder, name)
    submitted_s = time.time()
    cluster.wait_until(lambda: _moments(folder, name), f"{name} starts")
    # Only jobs in the lower tier can be preempted: with this pause there is always one.
    time.sleep(THRESHOLD_GPU_S / 4)
    if number % 10 == 9:
        click.echo(f"{number + 1} of {of} preemptions", err=True)
    return Preemptor(called_s, submitted_s, _moments(folder, name)[0])


def _parts(preemptor: Preemptor, cycles: Sequence[LoggedCycle]) -> Parts | None:
    """Return the parts of a start; None for a job that found idle GPUs."""
    writing = [
        cycle
        for cycle in cycles
        if cycle.writes
        and preemptor.submitted_s < cycle.ended_s
        and cycle.began_s < preemptor.started_s
    ]
    if len(writing) < 2:
        return None
    claim, *_, requeue = writing
    sbatch_s = preemptor.submitted_s - preemptor.called_s
    slurm_s = preemptor.started_s - requeue.ended_s
    all_s = preemptor.started_s - preemptor.called_s
    return {
        "sbatch": sbatch_s,
        "the controller notices": claim.began_s - preemptor.submitted_s,
        "reads": claim.read_s,
        "decides": claim.decided_s,
        "claims": claim.wrote_s,
        "Slurm tries the job, and is seen to have": requeue.began_s - claim.ended_s,
        "the cycle that requeues the victim": requeue.ended_s - requeue.began_s,
        "Slurm's kill and launch": slurm_s,
        "the controller's share": all_s - sbatch_s - slurm_s,
        "all": all_s,
    }
