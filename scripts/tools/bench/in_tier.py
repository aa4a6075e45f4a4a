"""The effect of the order inside a tier, with all costs counted."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from scripts.tools.document import markdown, write_section
from slurm_tiresias.config import parse
from slurm_tiresias.settings.policy import ORDERS
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.report import Figures, figures
from slurm_tiresias.simulator.run import Setup, simulate
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import Workload, paper480, philly_like

THRESHOLDS_GPU_S = ((3600,), (3600, 18000, 100000))
PHILLY_JOBS = 4_000
INTERVAL_S, REQUEUE_DELAY_S = 60.0, 5.0
SEEDS = {"paper480": range(1, 11), "philly-like": range(1, 4)}
WORKLOADS: dict[str, tuple[str, Callable[[int], Workload]]] = {
    "paper480": ("15x4", paper480),
    "philly-like": ("64x4", lambda seed: philly_like(PHILLY_JOBS, seed, 256, 1.0)),
}


@dataclass(frozen=True)
class Trial:
    seed: int
    workload: str
    thresholds_gpu_s: tuple[int, ...]
    order: str

    def figures(self) -> Figures:
        cluster, make = WORKLOADS[self.workload]
        site = parse_cluster(cluster, "skew")
        policy = {"order": self.order, "thresholds_gpu_s": list(self.thresholds_gpu_s)}
        config = parse({"policy": policy})
        timing = Timing(INTERVAL_S, REQUEUE_DELAY_S)
        setup = Setup(site, config, Costs(site, speeds=True, flat_s=None), timing)
        return figures(simulate(make(self.seed), "tiresias-l", setup), site.gpus)


def measure() -> None:
    settings = [
        (workload, thresholds, order)
        for workload in WORKLOADS
        for thresholds in THRESHOLDS_GPU_S
        for order in ORDERS
    ]
    trials = [[Trial(seed, *setting) for seed in SEEDS[setting[0]]] for setting in settings]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [list(pool.map(Trial.figures, some)) for some in trials]
    rows = [_row(setting, some) for setting, some in zip(settings, found, strict=True)]
    header = (
        "workload, thresholds in GPU-s, order",
        "average JCT, s",
        "median",
        "95th",
        "99th",
        "preemptions",
    )
    text = (
        f"{markdown(header, rows)}\n\n"
        f"Tiresias-L with the default guards, decisions every {INTERVAL_S:.0f} s, a requeue delay "
        f"of {REQUEUE_DELAY_S:.0f} s, and the overhead and speeds of the models; means over "
        f"{len(SEEDS['paper480'])} seeds of paper480 on 15x4 and {len(SEEDS['philly-like'])} of "
        f"{PHILLY_JOBS:,} philly-like jobs on 64x4 at load 1."
    )
    write_section("The order inside a tier", "scripts/dev bench orders", text)
    print(text)


def _row(setting: tuple[str, tuple[int, ...], str], found: Sequence[Figures]) -> Sequence[str]:
    workload, thresholds, order = setting

    def mean(of: Callable[[Figures], float]) -> str:
        return f"{statistics.mean(map(of, found)):,.0f}"

    return (
        f"{workload}, {' '.join(map(str, thresholds))}, {order}",
        mean(lambda one: one.average_jct_s),
        mean(lambda one: one.median_jct_s),
        mean(lambda one: one.p95_jct_s),
        mean(lambda one: one.p99_jct_s),
        mean(lambda one: one.preemptions),
    )
