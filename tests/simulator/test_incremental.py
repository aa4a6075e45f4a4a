"""An engine that is kept from event to event chooses the same as ``decide`` on a new snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.constants import replaced
from scripts.testbed.job_views import view
from slurm_tiresias.config import parse
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.losses import Loss, RecentLosses, lost_gpu_s
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import JobState, Node, RecentVictims
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import ORDERS
from slurm_tiresias.simulator import schedulers
from slurm_tiresias.simulator.engine import Scheduler, SimJob, Simulation, Timing
from slurm_tiresias.simulator.reports import ReportModel, Reports
from slurm_tiresias.simulator.run import Setup, asking
from slurm_tiresias.simulator.saves import SaveModel
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    constants = {
        "BUDGET_WINDOW_S": 300.0,
        "CHARGE_WINDOW_S": 200.0,
        "GITTINS_SAMPLES": 2,
        "PROMOTE_FLOOR_S": 50.0,
    }
    with replaced(constants):
        yield


class Checked:
    """A scheduler whose every choice is compared with that of ``decide`` on a snapshot."""

    def __init__(
        self, checked: Scheduler, policy: Policy, config: Config, nodes: Sequence[Node]
    ) -> None:
        self._checked = checked
        self._policy, self._config, self._nodes = policy, config, tuple(nodes)
        self._jobs: dict[str, SimJob] = {}
        self._losses = RecentLosses(config.preemption)
        self._gpus = sum(node.total.gpu_count for node in nodes)
        self._rate, self._recent = VictimRate.of(config), RecentVictims()
        self.choices = 0

    def waits(self, job: SimJob, now_s: float) -> None:
        self._jobs[job.job_id] = job
        self._checked.waits(job, now_s)

    def runs(self, job: SimJob, now_s: float) -> None:
        self._jobs[job.job_id] = job
        self._checked.runs(job, now_s)

    def moved(self, job: SimJob, now_s: float) -> None:
        self._checked.moved(job, now_s)

    def preempted(self, job: SimJob, now_s: float) -> None:
        self._checked.preempted(job, now_s)

    def failed(self, job: SimJob, now_s: float) -> None:
        del self._jobs[job.job_id]
        self._checked.failed(job, now_s)

    def ended_in_grace(self, job: SimJob) -> None:
        self._checked.ended_in_grace(job)

    def ended(self, job: SimJob) -> None:
        del self._jobs[job.job_id]
        self._checked.ended(job)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        return self._checked.next_change_s(job, now_s)

    def next_wake_s(self, now_s: float) -> float:
        return self._checked.next_wake_s(now_s)

    def choose(self, now_s: float) -> Iterable[Start]:
        for job in self._jobs.values():
            if job.state is JobState.RUNNING:
                job.settle(now_s)
        chosen = list(self._checked.choose(now_s))
        over = self._losses.over_budget(now_s, self._gpus)
        jobs = tuple(_as_job(job, job.user in over) for job in self._jobs.values())
        snapshot = Snapshot(now_s, self._nodes, jobs, self._recent)
        plan = decide(snapshot, self._policy, self._config)
        found = {start.job_id: (dict(start.allocation), set(start.victims)) for start in chosen}
        wanted = {d.job_id: (dict(d.start_on), set(d.victims)) for d in plan.starts}
        assert found == wanted
        self.choices += len(chosen)
        victims = sum(len(start.victims) for start in chosen)
        self._recent = self._rate.after(self._recent, victims, now_s)
        for start in chosen:
            for victim in map(self._jobs.pop, start.victims):  # come back by ``waits``
                self._take_in(victim, self._jobs[start.job_id].user, now_s)
        return chosen

    def _take_in(self, victim: SimJob, user: str, now_s: float) -> None:
        assert victim.running_since_s is not None
        if victim.user != user:
            lost = lost_gpu_s(victim.gpus, now_s - victim.running_since_s)
            self._losses.add(Loss(now_s, user, lost))


def _as_job(job: SimJob, over_budget: bool) -> Job:
    return view(
        job.job_id,
        job.state,
        job.ask.request,
        submitted_s=job.submitted_s,
        user=job.user,
        name=job.name,
        attained_gpu_s=job.attained_gpu_s,
        attained_since_promotion_gpu_s=job.attained_since_promotion_gpu_s,
        executed_since_promotion_s=job.executed_since_promotion_s,
        inherited_gpu_s=job.inherited_gpu_s,
        first_started_s=job.first_started_s,
        tier_entered_s=job.tier_entered_s,
        queued_s=job.queued_s,
        running_since_s=job.running_since_s,
        allocation=job.allocation,
        preemptions=job.preemptions,
        promotions=job.promotions,
        style=job.ask.style,
        remaining_s=job.remaining_s,
        claim=job.claim,
        lane=job.lane,
        learned=job.learned,
        program_costs=job.program_costs,
        time_limit_s=job.time_limit_s,
        fair=job.fair,
        at_stake=job.at_stake if job.state is JobState.RUNNING else None,
        over_budget=over_budget,
    )


THRESHOLDS_GPU_S = (96, 384)
"""The widths divide the thresholds, so that all times are exact, and both sides see a job cross one
at the same moment."""
MODELS = ("vgg16", "resnet50", "")

workloads = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from([1, 1, 1, 2, 3, 4, 8, 12]),
        st.integers(1, 500),
        st.sampled_from(MODELS),
        st.sampled_from(["ann", "ben"]),
        st.sampled_from(["train", "debug"]),
        st.sampled_from([None, 600.0, 900.0]),
    ),
    min_size=2,
    max_size=40,
).map(
    lambda rows: Workload(
        "drawn",
        tuple(
            TraceJob(
                str(i),
                float(at_s),
                gpus,
                float(long_s),
                model,
                user=user,
                name=name,
                limit_s=limit_s,
            )
            for i, (at_s, gpus, long_s, model, user, name, limit_s) in enumerate(
                sorted(rows, key=lambda row: row[:-1])
            )
        ),
    )
)

configs = st.builds(
    lambda name, estimates, order, charge, knob, slowdown, min_run_s, share: parse(
        {
            "policy": {
                "name": name,
                "estimates": estimates,
                "order": order,
                "charge": charge,
                "max_slowdown": slowdown,
                "thresholds_gpu_s": list(THRESHOLDS_GPU_S),
                "promote_knob": knob,
            },
            "preemption": {
                "min_run_s": min_run_s,
                "budget_share": share,
            },
        }
    ),
    st.sampled_from(["2d-las", "2d-gittins"]),
    st.sampled_from([[], ["reports"], ["history"], ["reports", "history"]]),
    st.sampled_from(ORDERS),
    st.sampled_from(["job", "job", "user"]),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 1.5, 3]),
    st.sampled_from([0, 0, 30]),
    st.sampled_from([0, 0, 0.02, 0.1]),
)


def _run(
    workload: Workload,
    setup: Setup,
    scheduler: Scheduler,
    policy: Policy,
) -> Checked:
    checked = Checked(scheduler, policy, setup.config, setup.cluster.as_nodes())
    ask = asking(setup, only_consolidated=False)
    outcomes = Simulation(workload.jobs, checked, setup.costs, setup.timing, ask).run()
    assert len(outcomes) == len(workload.jobs)
    return checked


SAVES = SaveModel(((0.0, 0.25), (120.0, 0.25), (200.0, 0.25), (math.inf, 0.25)), told=0.8)


def _setup(
    config: Config,
    cluster: str,
    placement: str,
    timing: Timing,
    saves: SaveModel | None = None,
) -> Setup:
    sim_cluster = parse_cluster(cluster, placement)
    costs = Costs(sim_cluster, speeds=False, flat_s=7.0, saves=saves)
    return Setup(sim_cluster, config, costs, timing)


@given(
    workloads,
    configs,
    st.sampled_from(["3x4", "2x8"]),
    st.sampled_from(["skew", "consolidate", "spread", "random", "pooled"]),
    st.sampled_from([Timing(), Timing(requeue_delay_s=20), Timing(interval_s=15)]),
    st.sampled_from(
        [
            None,
            ReportModel(1.0),
            ReportModel(0.6, sigma=0.5, liars=0.3),
            ReportModel(1, shuffled=True),
        ]
    ),
    st.sampled_from([None, SAVES]),
)
def test_choices_equal_those_of_new_snapshots_under_tiresias(
    workload: Workload,
    config: Config,
    cluster: str,
    placement: str,
    timing: Timing,
    model: ReportModel | None,
    saves: SaveModel | None,
) -> None:
    setup = _setup(config, cluster, placement, timing, saves)
    nodes = setup.cluster.as_nodes()
    history = ServiceHistory(job.gpus * job.duration_s for job in workload.jobs)
    reports = Reports(model, workload) if model else None
    scheduler = schedulers.tiresias(config, nodes, history, reports)
    # The same policy object: it learns once, when a job ends.
    checked = _run(workload, setup, scheduler, scheduler.policy)
    assert checked.choices >= len(workload.jobs)
