"""The finish-time fairness that Shockwave's authors published, beside ours on the same jobs.

Trace and results are read from a clone of github.com/uw-mad-dash/shockwave: the 120 jobs of its
``tacc_32gpus`` experiment, whose running times follow from the published results.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from scripts.tools.bench.clones import clone_option, content
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

Floats = npt.NDArray[np.float64]

CLUSTER = "8x4"
NAME = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic"
TRACE = f"scheduler/traces/reproduce/{NAME}.trace"
GPUS_FIELD, SUBMITTED_FIELD = 6, 11
SIMULATION = f"scheduler/reproduce/pickles/tacc_32gpus/{{}}_{NAME}_simulation.pickle"
TESTBED = f"scheduler/reproduce/pickles/tacc_32gpus_comparison/{{}}_{NAME}_physical.pickle"
SCHEDULERS = {
    "shockwave": "Shockwave",
    "finish_time_fairness": "Themis",
    "max_min_fairness": "Gavel",
    "allox": "AlloX",
    "max_sum_throughput_perf": "most throughput",
    "min_total_duration": "OSSP",
}
"""The schedulers by the names of their results; the paper's names."""
UNFAIR = 1.05
"""The authors count a job above this fairness as treated unfairly."""


@dataclass(frozen=True)
class Published:
    """The results of one scheduler, by job in the order of the trace."""

    jct_s: Floats
    fairness: Floats
    """Completion time over the time on an even share of the cluster."""
    makespan_s: float


@click.command("shockwave")
@clone_option("uw-mad-dash/shockwave")
def shockwave(clone: Path) -> None:
    """The finish-time fairness that the authors of Shockwave published, beside ours."""
    rows = [
        _row(f"{title}, their {kind}", published(clone, path.format(name)))
        for kind, path in (("testbed", TESTBED), ("simulation", SIMULATION))
        for name, title in SCHEDULERS.items()
    ]
    jobs = workload(clone)
    default = Config()
    bounded = parse({"policy": {"max_slowdown": 2}})
    rows += [
        _row("tiresias-l, default settings", simulated(jobs, "tiresias-l", default)),
        _row("the same, max_slowdown = 2", simulated(jobs, "tiresias-l", bounded)),
        _row("dlas", simulated(jobs, "dlas", default)),
        _row("best-effort", simulated(jobs, "best-effort", default)),
        _row("srsf", simulated(jobs, "srsf", default)),
    ]
    header = ("scheduler", "average JCT, s", "makespan, s", "worst fairness", f"above {UNFAIR}")
    record(
        "Shockwave's finish-time fairness",
        markdown(header, rows),
        f"{len(jobs.jobs)} jobs on {CLUSTER} GPUs. Fairness is the authors' measure: completion "
        "time over the running time alone times the jobs per GPU in the whole trace. The last five "
        "rows are simulated here, with the running times alone that follow from the published "
        "results, restarts as long as `simulate` assumes, and decisions every "
        f"{default.controller.interval_s:g} s (dlas: six minutes, best-effort: at every event). "
        "The published figures include the overheads of the testbed, or the authors' model of "
        "them. `max_slowdown` bounds another measure: against an even share among the jobs that "
        "are there at the time.",
    )


class _Plain(pickle.Unpickler):
    """Reads pickles of plain data only, because others can run any code."""

    def find_class(self, module: str, name: str) -> object:
        known = {
            "set": set,
            "OrderedDict": OrderedDict,
            "dtype": np.dtype,
            "scalar": lambda dtype, data: np.frombuffer(data, dtype)[0],
            "JobIdPair": _JobIdPair,
        }
        if name not in known:
            raise click.ClickException(f"{module}.{name} is not plain data. Name another clone.")
        return known[name]


class _JobIdPair:
    """Stands for their class of job ids, which is not needed."""


def published(clone: Path, path: str) -> Published:
    found: Mapping[str, object] = _Plain(io.BytesIO(content(clone, path))).load()
    return Published(
        np.array(found["jct_list"], dtype=float),
        np.array(found["finish_time_fairness_list"], dtype=float),
        float(np.float64(str(found["makespan"]))),
    )


def workload(clone: Path) -> Workload:
    """Return the jobs of the trace, with the running times that they would have alone."""
    lines = content(clone, TRACE).decode().splitlines()
    of = published(clone, SIMULATION.format("shockwave"))
    alone_s = of.jct_s / of.fairness / jobs_per_gpu(len(lines))
    jobs = (
        TraceJob(str(number), float(at_s), int(gpus), duration_s)
        for number, (line, duration_s) in enumerate(zip(lines, alone_s.tolist(), strict=True))
        for fields in [line.split("\t")]
        for gpus, at_s in [(fields[GPUS_FIELD], fields[SUBMITTED_FIELD])]
    )
    return Workload("Shockwave", tuple(jobs))


def jobs_per_gpu(jobs: int) -> float:
    """Return their contention factor."""
    return max(1.0, jobs / parse_cluster(CLUSTER, "skew").gpus)


def simulated(jobs: Workload, policy: str, config: Config) -> Published:
    site = parse_cluster(CLUSTER, "skew")
    costs = Costs(site, speeds=False, flat_s=None)
    setup = run.Setup(site, config, costs, Timing(config.controller.interval_s))
    outcomes = run.simulate(jobs, policy, setup)
    jct_s = np.array([outcome.jct_s for outcome in outcomes])
    alone_s = np.array([outcome.job.duration_s for outcome in outcomes])
    fairness = jct_s / alone_s / jobs_per_gpu(len(outcomes))
    return Published(jct_s, fairness, max(outcome.end_s for outcome in outcomes))


def _row(title: str, found: Published) -> Sequence[str]:
    return (
        title,
        f"{np.mean(found.jct_s):,.0f}",
        f"{found.makespan_s:,.0f}",
        f"{np.max(found.fairness):.2f}",
        f"{np.mean(found.fairness > UNFAIR):.0%}",
    )
