"""The period from sbatch until a job runs on GPUs that a lower tier held, and its parts.

The cluster is always full of jobs that never end and soon fall into the lower tier, so each new
job preempts one of them.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import click

from scripts import ROOT
from scripts.testbed.jobs import slurm
from scripts.testbed.place import (
    Place,
    bring_up,
    say,
    start_controller,
    temporary_place,
    wait_until,
)
from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.replay.cluster import with_local
from scripts.tools.document import markdown

NODES, GPUS = 4, 4
THRESHOLD_GPU_S = 2.0
POLL_INTERVAL_S = 2.0
CONFIG = """\
[policy]
thresholds_gpu_s = [{threshold}]

[preemption]
min_run_s = 0.5

[controller]
mode = "enforce"
interval_s = {interval}
state_dir = "{{state_dir}}"
nudge_file = "{{state_dir}}/nudge"
"""
JOB = """#!/bin/bash
trap 'echo "told $EPOCHREALTIME" >>"$1"; exit' TERM
echo "started $EPOCHREALTIME" >>"$1"
sleep infinity &
wait
"""
_CYCLE = re.compile(
    r"(\S+ \S+) DEBUG: cycle \d+: read in (\S+) s, decided in (\S+) s, (\d+) writes in (\S+) s"
)


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of the controller from its log; times since the epoch, durations in seconds."""

    ended_s: float
    read_s: float
    decide_s: float
    writes: int
    act_s: float

    @property
    def began_s(self) -> float:
        return self.ended_s - self.read_s - self.decide_s - self.act_s


@dataclass(frozen=True, slots=True)
class Preemptor:
    """One job for which another was preempted; times in seconds since the epoch."""

    called_s: float
    submitted_s: float
    started_s: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one start, in seconds."""

    sbatch_s: float
    notice_s: float
    """Until the cycle begins that nominates the job."""
    read_s: float
    decide_s: float
    claim_s: float
    tried_s: float
    """Until the cycle begins that sees that Slurm has tried the job, and requeues the victim."""
    requeue_s: float
    """The duration of that cycle."""
    slurm_s: float
    """Slurm's kill of the victim and launch of the job."""

    @property
    def controller_s(self) -> float:
        return self.all_s - self.sbatch_s - self.slurm_s

    @property
    def all_s(self) -> float:
        return math.fsum(getattr(self, field.name) for field in fields(self))


@click.command("latency")
@count_option("preemptions", 200, 10000, 5)
def latency(preemptions: int) -> None:
    """The period from sbatch until a job runs on GPUs that a lower tier held."""
    nudged = _run(preemptions, nudges=True)
    polling = _run(preemptions, nudges=False)
    header = ("", "median, ms", "99th", "median, polling", "99th")
    rows = [
        (name, *_figures([getattr(p, field) for p in nudged]), *_figures(_of(polling, field)))
        for name, field in NAMES.items()
    ]
    text = (
        f"{markdown(header, rows)}\n\n{len(nudged)} preemptions each, one after the other, on "
        f"{NODES} nodes of {GPUS} GPUs: a job of one GPU comes to a cluster full of jobs of the "
        "lower tier. The first two columns are with the nudge of etc/job_submit.lua, the others "
        f"without, at an interval of {POLL_INTERVAL_S:g} s. Slurm must have tried the job before "
        "a victim is requeued; the controller looks after 50 ms, then ever more rarely."
    )
    record("Latency of a preemption", text)


NAMES = {
    "sbatch": "sbatch_s",
    "the controller notices": "notice_s",
    "reads": "read_s",
    "decides": "decide_s",
    "claims": "claim_s",
    "Slurm tries the job, and is seen to have": "tried_s",
    "the cycle that requeues the victim": "requeue_s",
    "Slurm's kill and launch": "slurm_s",
    "the controller's share": "controller_s",
    "all": "all_s",
}


def _of(parts: Sequence[Parts], field: str) -> list[float]:
    return [getattr(one, field) for one in parts]


def _figures(values_s: Sequence[float]) -> tuple[str, str]:
    worst = statistics.quantiles(values_s, n=100, method="inclusive")[98]
    return f"{1000 * statistics.median(values_s):.0f}", f"{1000 * worst:.0f}"


def _run(preemptions: int, nudges: bool) -> list[Parts]:
    interval_s = 10.0 if nudges else POLL_INTERVAL_S
    with temporary_place(
        "latency", CONFIG.format(threshold=THRESHOLD_GPU_S, interval=interval_s)
    ) as place:
        _start_cluster(place, nudges)
        start_controller(place, "--verbose")
        _fill(place)
        preemptors = [_win(place, number, preemptions) for number in range(preemptions)]
        cycles = list(_cycles(place.controller_log.read_text()))
    return [parts for preemptor in preemptors if (parts := _parts(preemptor, cycles))]


def _start_cluster(place: Place, nudges: bool) -> None:
    lua = place.folder / "job_submit.lua"
    text = (ROOT / "etc" / "job_submit.lua").read_text()
    nudge_file = f'"{place.state}/nudge"' if nudges else '""'
    lua.write_text(with_local(text, "nudge_file", nudge_file))
    bring_up(
        place,
        *(f"--nodes={NODES}", f"--gpus={GPUS}", "--no-accounting", "--partition=gpu"),
        *(f"--conf-file={lua}", "--slurm-conf-line=JobSubmitPlugins=lua"),
        "--slurm-conf-line=SchedulerParameters=disable_job_shrink,batch_sched_delay=1",
    )


def _fill(place: Place) -> None:
    for number in range(NODES * GPUS):
        _submit(place, f"first{number}")
    wait_until(lambda: all(_moments(place, f"first{n}") for n in range(NODES * GPUS)), "all run")
    time.sleep(2 * THRESHOLD_GPU_S)  # until every job has attained the threshold


def _submit(place: Place, name: str) -> None:
    script = place.folder / "job"
    script.write_text(JOB)
    slurm(
        place,
        *("sbatch", "--parsable", "--gpus=1", "--mem=10", "--output=/dev/null", f"-J{name}"),
        *(str(script), str(place.jobs / name)),
    )


def _moments(place: Place, name: str) -> list[float]:
    """Return the time at which the job started; empty until then."""
    journal = place.jobs / name
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith("started ")]


def _win(place: Place, number: int, of: int) -> Preemptor:
    name = f"preemptor{number}"
    called_s = time.time()
    _submit(place, name)
    submitted_s = time.time()
    wait_until(lambda: bool(_moments(place, name)), f"{name} to start")
    # Only jobs in the lower tier can be preempted: with this pause there is always one.
    time.sleep(THRESHOLD_GPU_S / 4)
    if number % 10 == 9:
        say(f"{number + 1} of {of} preemptions")
    return Preemptor(called_s, submitted_s, _moments(place, name)[0])


def _cycles(log: str) -> Iterator[Cycle]:
    for at, read_s, decide_s, writes, act_s in _CYCLE.findall(log):
        ended_s = datetime.strptime(at, "%Y-%m-%d %H:%M:%S.%f").timestamp()
        yield Cycle(ended_s, float(read_s), float(decide_s), int(writes), float(act_s))


def _parts(preemptor: Preemptor, cycles: Sequence[Cycle]) -> Parts | None:
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
    return Parts(
        sbatch_s=preemptor.submitted_s - preemptor.called_s,
        notice_s=claim.began_s - preemptor.submitted_s,
        read_s=claim.read_s,
        decide_s=claim.decide_s,
        claim_s=claim.act_s,
        tried_s=requeue.began_s - claim.ended_s,
        requeue_s=requeue.ended_s - requeue.began_s,
        slurm_s=preemptor.started_s - requeue.ended_s,
    )
