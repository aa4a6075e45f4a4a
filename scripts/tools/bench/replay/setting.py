"""The input of both sides: the workload, made shorter, and one configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from scripts.testbed.constants import replaced
from scripts.tools.bench.replay.calibrate import Calibration
from slurm_tiresias.config import parse
from slurm_tiresias.core.features import claims, save_due
from slurm_tiresias.progress import output
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import PolicyConfig
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines.backfill import DEFAULT_LIMIT_S, SlurmParameters
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.limits import USERS, with_limits
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480

PHASES = 20
"""Number of simulated phases. The first job arrives at a random phase of the controller's interval,
so evenly spaced phases are simulated and their mean is used."""

SCHEDULER = "bf_interval=1,bf_resolution=1,batch_sched_delay=1,sched_interval=2,disable_job_shrink"
"""Slurm's own schedulers run as often as possible, so that their delays do not matter."""

SLURM = SlurmParameters(bf_interval_s=1.0, bf_resolution_s=1.0, kill_wait_s=5.0)
"""The values set by ``SCHEDULER`` and ``scripts/cluster``; not divided."""

BATCH_SCHED_DELAY_S = 1.0
"""Also set there: the longest wait of a new job for Slurm's main scheduler. It applies to stock
Slurm, for which the controller's measured response time is irrelevant."""

MOST_JOBS = 480

DAY = "day"
LIMITS = (DAY, USERS)
"""Time limits of a day for all jobs, or like those that users give."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One comparison. Times are those of the run, already divided by ``factor``."""

    jobs: int
    seed: int
    nodes: int
    gpus: int
    factor: float
    order: str
    thresholds_gpu_s: tuple[float, ...] = (3600.0,)
    min_run_s: float = 120.0
    load_s: float = 60.0
    """What a job loses at each restart. This and the two fields above are before the division."""
    interval_s: float = 1.0
    """The controller's interval; not divided, because Slurm cannot follow a faster one."""
    policy: str = "2d-las"
    limits: str = DAY
    """The kind of the jobs' time limits, one of ``LIMITS``."""
    reports: ReportModel | None = None
    """Which jobs report progress; None if none does."""
    estimates: tuple[str, ...] = PolicyConfig().estimates

    @property
    def tables(self) -> dict[str, dict[str, object]]:
        """The configuration of both sides."""
        return {
            "manage": {"partitions": ["gpu"]},
            "policy": {
                "name": self.policy,
                "thresholds_gpu_s": [gpu_s / self.factor for gpu_s in self.thresholds_gpu_s],
                "order": self.order,
                "estimates": list(self.estimates),
            },
            "preemption": {"min_run_s": self.min_run_s / self.factor},
            "controller": {"mode": "enforce", "interval_s": self.interval_s},
        }

    @property
    def constants(self) -> Mapping[str, float]:
        """The program's own times, divided."""
        whole = {
            "REPORT_EVERY_S": claims.REPORT_EVERY_S,
            "FIRST_TIER_WAIT_S": save_due.FIRST_TIER_WAIT_S,
            "WAIT_FOR_SAVE_S": save_due.WAIT_FOR_SAVE_S,
        }
        return {name: seconds / self.factor for name, seconds in whole.items()}

    @property
    def output_constants(self) -> Mapping[str, float]:
        """The times after which the nodes believe what a job prints, divided."""
        return {"LEAST_S": output.LEAST_S / self.factor}

    def simulate(
        self, workload: Workload, policy: str, calibration: Calibration
    ) -> Sequence[Outcome]:
        """Return what the simulator foresees for this workload."""
        setup = self.setup(calibration)
        with replaced(self.constants):
            return run.simulate(workload, policy, setup)

    @property
    def config(self) -> Config:
        return parse(self.tables)

    def site(self) -> SimCluster:
        return SimCluster(self.nodes, self.gpus, "consolidate")

    def whole(self) -> Workload:
        """Return the first jobs of the paper's workload, at full length."""
        every = paper480(self.seed)
        jobs = (replace(job, limit_s=DEFAULT_LIMIT_S) for job in every.jobs)
        limited = with_limits(every, USERS).jobs if self.limits == USERS else tuple(jobs)
        return replace(every, jobs=limited[: self.jobs])

    def workload(self) -> Workload:
        """Return the same jobs made shorter; raise ``click.UsageError`` if some do not fit."""
        whole = self.whole()
        kept = tuple(_faster(job, self.factor) for job in whole.jobs)
        fitting, wide = run.fitting(replace(whole, jobs=kept), self.site())
        if wide:
            raise click.UsageError(
                f"{len(wide)} of the jobs request more than {self.nodes * self.gpus} GPUs. "
                "Name more --nodes."
            )
        return fitting

    def phases(self) -> Iterator[Workload]:
        """Yield the same jobs, arriving at different phases of the controller's interval."""
        workload = self.workload()
        for number in range(PHASES):
            later_s = (number + 0.5) / PHASES * self.interval_s
            moved = (replace(job, submitted_s=job.submitted_s + later_s) for job in workload.jobs)
            yield replace(workload, jobs=tuple(moved))

    def setup(self, calibration: Calibration) -> run.Setup:
        """Return the simulator's setup, with the calibration."""
        site = self.site()
        return run.Setup(
            cluster=site,
            config=self.config,
            costs=Costs(site, speeds=False, flat_s=self.load_s / self.factor),
            timing=self.timing(calibration),
            slurm=SLURM,
            own_pace_s=BATCH_SCHED_DELAY_S,
            reports=self.reports,
        )

    def timing(self, calibration: Calibration) -> Timing:
        """Return measured delays minus half an interval: the engine itself makes a job wait for the
        next cycle, half an interval on average, which the measurements include."""
        half_s = self.interval_s / 2
        return Timing(
            interval_s=self.interval_s,
            requeue_delay_s=max(0.0, calibration.restart_s - half_s),
            preempting_delay_s=max(0.0, calibration.preempting_start_s - half_s),
        )


def _faster(job: TraceJob, factor: float) -> TraceJob:
    return replace(
        job,
        submitted_s=job.submitted_s / factor,
        duration_s=job.duration_s / factor,
        limit_s=job.limit_s and job.limit_s / factor,
    )
