"""Compare the controller on the in-memory Slurm with the simulator, start for start.

Both get the same jobs and decide at the same ticks. Slurm has no latency here: at each tick the
clock stands still while the controller's cycles and Slurm's scheduling passes alternate until
nothing changes. What the controller plans to start it starts, on the nodes that the controller has
chosen, also where the controller leaves the choice to Slurm: of two jobs that start on idle GPUs,
Slurm might give each the node of the other. A job ends when its work is done, over all its runs.

    python -m scripts.testbed.start_for_start --seeds 1-20 [--settings NAME] [--paper480]

Settings are those of one feature by name, ``all`` of them together, or ``random``: any of them
together, by the seed. Lanes and idle GPUs are not simulated, so they are not compared.
"""

from __future__ import annotations

import argparse
import heapq
import math
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast
from unittest import mock

from scripts.testbed.constants import replaced
from scripts.testbed.in_memory import InMemorySlurm, scheduling
from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.records import JobRecord, Submission
from scripts.testbed.in_memory.slurmctld import Settings, Slurmctld
from scripts.testbed.user_text import IN_MEMORY
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycles
from slurm_tiresias.controller.preemption_costs import PreemptionCosts
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.features import make
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.program_costs import CostHistory
from slurm_tiresias.model import (
    NOWHERE,
    Allocation,
    Estimate,
    JobProgress,
    JobState,
    ProgressSource,
)
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.progress.folder import Latest, ProgressFolder
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import REPORTS
from slurm_tiresias.simulator import reports as sim_reports
from slurm_tiresias.simulator import schedulers
from slurm_tiresias.simulator.engine import Scheduler, Simulation, Timing
from slurm_tiresias.simulator.reports import Reporter, ReportModel, Reports
from slurm_tiresias.simulator.run import Setup, asking
from slurm_tiresias.simulator.saves import SaveModel, measured, regular_s
from slurm_tiresias.simulator.sim_cluster import PARTITION, Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480
from slurm_tiresias.store.ledger import Ledger

INTERVAL_S = 10.0
MOST_TURNS = 50
"""Cycles at one tick until nothing changes."""
MOST_TICKS = 50_000
FOREVER_S = 1e12

Tables = Mapping[str, Mapping[str, object]]


class Case(NamedTuple):
    """A configuration, and constants of the program that are replaced (``constants.py``)."""

    config: Config
    constants: Mapping[str, float]


PLAIN: Tables = {
    "manage": {"partitions": [PARTITION]},
    "controller": {"interval_s": INTERVAL_S},
    "policy": {"estimates": [], "thresholds_gpu_s": [96.0, 384.0], "promote_knob": 0.0},
    "preemption": {
        "min_run_s": 0.0,
        "budget_share": 0.0,
    },
    "constants": {
        "BUDGET_WINDOW_S": 600.0,
        "CHARGE_WINDOW_S": 600.0,
        "FIRST_TIER_WAIT_S": 0.0,
        "GITTINS_SAMPLES": 2,
        "KEPT_TIMES": 0.0,
        "MAX_VICTIMS": 1000,
        "PROMOTE_FLOOR_S": 60.0,
        "WAIT_FOR_SAVE_S": 0.0,
    },
}
MODELS = ("vgg16", "resnet50", "")
"""One of high skew, one of low skew, and one that is unknown."""

FEATURES: Mapping[str, Tables] = {
    "plain": {},
    "min-run": {"preemption": {"min_run_s": 60.0}},
    "min-run-growth": {
        "preemption": {"min_run_s": 30.0},
        "constants": {"KEPT_TIMES": 2.0},
    },
    "victims-per-interval": {"constants": {"MAX_VICTIMS": 1}},
    "first-tier-wait": {"constants": {"FIRST_TIER_WAIT_S": 60.0}},
    "entry": {"policy": {"order": "entry"}},
    "running-first": {"policy": {"order": "running-first"}},
    "newest": {"policy": {"order": "newest"}},
    "gittins": {"policy": {"name": "2d-gittins"}},
    "promotion": {"policy": {"promote_knob": 2.0}},
    "charge-user": {"policy": {"charge": "user"}},
    "charge-account": {"policy": {"charge": "account"}},
    "budget": {"preemption": {"budget_share": 0.05}},
    "history": {"policy": {"estimates": ["history"]}},
    "reports": {"policy": {"estimates": ["reports"]}},
    "saves": {"constants": {"WAIT_FOR_SAVE_S": 100.0}},
}
"""Settings by name, on top of ``PLAIN``."""

REPORTING = ReportModel(0.5)
SAVING = SaveModel(((0.0, 0.2), (60.0, 0.3), (150.0, 0.3), (math.inf, 0.2)), told=0.6)
"""How jobs report and save under the settings of these names; else they do not."""

RANDOM, ALL = "random", "all"

SOMETIMES = 20
"""The controller also looks at every 20th tick at which the simulator has nothing to do: a change
that the simulator overlooks would show there."""


class Event(NamedTuple):
    """A start or a preemption; ``nodes`` has the GPUs by node of a start."""

    at_s: float
    kind: str
    job: str
    nodes: tuple[tuple[str, int], ...] = ()


def configured(name: str, seed: int = 0) -> Case:
    """Return the configuration with this name in ``FEATURES``, or several of them together."""
    chosen = [name]
    if name == ALL:
        # All features that can be on together; the later of two that differ in a value counts.
        chosen = [one for one in FEATURES if one != "gittins"]
    if name == RANDOM:
        random = Random(f"settings {seed}")
        chosen = random.sample(list(FEATURES), random.randint(2, 6))
    tables = {table: dict(settings) for table, settings in PLAIN.items()}
    for one in chosen:
        for table, settings in FEATURES[one].items():
            before = tables.setdefault(table, {})
            for setting, value in settings.items():
                if setting == "estimates" and isinstance(value, list):
                    value = [*before.get(setting, []), *value]  # type: ignore[misc]
                before[setting] = value
    constants = cast(Mapping[str, float], tables.pop("constants"))
    return Case(parse(tables), constants)


def random_case(seed: int) -> tuple[SimCluster, Workload]:
    """Return a small cluster and jobs for it."""
    random = Random(f"start for start {seed}")
    cluster = SimCluster(random.randint(1, 4), random.randint(1, 4))
    widths = [w for w in (1, 1, 1, 2, 3, 4, 6, 8) if w <= cluster.gpus]
    arrivals = sorted(random.randint(0, 300) for _ in range(random.randint(5, 30)))
    jobs = (
        TraceJob(
            str(number),
            float(at_s),
            random.choice(widths),
            float(random.randint(5, 400)),
            user=random.choice(("ann", "ben")),
            name=random.choice(("train", "debug")),
            limit_s=random.choice((None, 1200.0, 3600.0)),
            account=random.choice(("lab", "hall")),
            model=Random(f"model {seed} {number}").choice(MODELS),
        )
        for number, at_s in enumerate(arrivals)
    )
    return cluster, Workload(f"random {seed}", tuple(jobs))


def paper_case(seed: int) -> tuple[SimCluster, Workload]:
    """Return the paper's cluster and its 480 jobs."""
    workload = paper480(seed)
    jobs = tuple(replace(job, user="ann", name=f"train-{job.model}") for job in workload.jobs)
    return SimCluster(15, 4), replace(workload, jobs=jobs)


def _known_service(workload: Workload) -> ServiceHistory:
    """Return the distribution of service that 2D-Gittins knows from the start, as in the paper."""
    return ServiceHistory(job.gpus * job.duration_s for job in workload.jobs)


# The simulator


class Recorded:
    """A scheduler of the simulation whose starts and preemptions are recorded."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.events: list[Event] = []
        self.ticks_s: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def choose(self, now_s: float) -> Iterable[Start]:
        self.ticks_s.append(now_s)
        starts = list(self._scheduler.choose(now_s))
        for start in starts:
            self.events.append(Event(now_s, "start", start.job_id, _gpus(start.allocation)))
            self.events += (Event(now_s, "preempted", victim) for victim in start.victims)
        return starts


def setup_of(cluster: SimCluster, case: Case) -> Setup:
    """Return the setup of a simulation without any cost of placement, or of preemption beyond the
    work that is not saved."""
    config = case.config
    saves = SAVING if case.constants["WAIT_FOR_SAVE_S"] else None
    return Setup(
        cluster,
        config,
        Costs(cluster, False, 0.0, saves),
        # Slurm adds a second to the delay, which is none here.
        Timing(config.controller.interval_s, requeue_delay_s=1.0),
        reports=REPORTING if REPORTS in config.policy.estimates else None,
    )


def simulated(workload: Workload, setup: Setup) -> tuple[list[Event], Sequence[float]]:
    """Return the events of a simulation, and the times at which the scheduler chose."""
    config, known, reports = setup.config, _known_service(workload), None
    if setup.reports:
        reports = Reports(setup.reports, workload)
    scheduler = Recorded(schedulers.tiresias(config, setup.cluster.as_nodes(), known, reports))
    ask = asking(setup, only_consolidated=False)
    Simulation(workload.jobs, cast(Scheduler, scheduler), setup.costs, setup.timing, ask).run()
    return sorted(scheduler.events), scheduler.ticks_s


# The controller


@dataclass
class Controlled:
    """A controller on the in-memory Slurm; times count from the workload's first second."""

    workload: Workload
    setup: Setup
    ledger: Ledger
    ticks_s: Sequence[float]
    events: list[Event] = field(default_factory=list)
    told: dict[float, str] = field(default_factory=dict)
    """By tick, what the first cycle saw and decided."""

    def __post_init__(self) -> None:
        settings = Settings(
            requeue_delay_s=0.0,
            epilog_s=0.0,
            kill_wait_s=0.0,
            schedule_delay_s=0.0,
            save_every_s=FOREVER_S,
        )
        nodes, self.config = self.setup.cluster.as_nodes(), self.setup.config
        # Both round alike only if both count from zero.
        self.slurm = InMemorySlurm(nodes, (PARTITION,), settings, Clock(0.0))
        self._slurms_choice = self.slurm._ctld.place
        self._chosen: Mapping[str, Allocation] = {}
        """Where the last plan starts jobs."""
        self._progress = ProgressFolder("")
        self._costs = CostHistory()
        """What preemptions of each program cost."""
        with mock.patch.object(PreemptionCosts, "costs_of", self._costs.costs_of):
            self.cycles = Cycles(
                self.slurm,
                self.slurm.cluster(),
                self.ledger,
                self.config,
                Profiler(ProfileStore(None), self.config),
                progress=self._progress,
            )
        self._ask = asking(self.setup, only_consolidated=False)
        self._trace_of: dict[str, TraceJob] = {}
        self._work_s: dict[str, float] = {}
        """Remaining work by job, as of its last start."""
        self._ran_s: dict[str, float] = defaultdict(float)
        """Running time by job, over all runs that have ended."""
        self._running: dict[str, float] = {}
        """Start of each running job."""
        self._ends: list[tuple[float, int, float]] = []
        """Heap of (end, job, start)."""
        self._arrivals = iter(self.workload.jobs)
        self._next = next(self._arrivals, None)

    @property
    def now_s(self) -> float:
        return self.slurm.clock.now_s

    def run(self) -> list[Event]:
        """Run until all jobs have ended."""
        known = _known_service(self.workload)
        for tick_s in self._ticks():
            with mock.patch.object(scheduling, "run", lambda _: None):
                self._pass_time(tick_s)
            with mock.patch.object(make, "ServiceHistory", lambda _: known):
                self._decide()
            if self._next is None and not self._work_s:
                return sorted(self.events)
        raise AssertionError(f"jobs {sorted(self._work_s)} of {self.workload.name} never end")

    def _ticks(self) -> Iterator[float]:
        """Yield the simulator's ticks and some others; after the last one, every tick."""
        interval_s, last_s = self.config.controller.interval_s, max(self.ticks_s)
        others = range(0, int(last_s / interval_s), SOMETIMES)
        yield from sorted({*self.ticks_s, *(tick * interval_s for tick in others)})
        for tick in range(1, MOST_TICKS):
            yield last_s + tick * interval_s

    def _place(self, record: JobRecord, ready: frozenset[str]) -> Allocation | None:
        """Return where a job starts: where the controller has placed it, once its GPUs are idle."""
        chosen = self._chosen.get(record.spec.key, NOWHERE)
        if not chosen:
            # A job that starts without a plan must not take what victims have left for others.
            return None if self._victims_leave() else self._slurms_choice(record, ready)
        may_start = chosen.keys() <= ready and self._is_free_for(record.spec.key, chosen)
        return chosen if may_start else None

    def _pass_time(self, until_s: float) -> None:
        """Let jobs end and arrive until a tick, while Slurm starts none."""
        while True:
            arrival_s = self._next.submitted_s if self._next else FOREVER_S
            end_s = self._ends[0][0] if self._ends else FOREVER_S
            at_s = min(arrival_s, end_s)
            self.slurm.advance(min(at_s, until_s) - self.now_s)
            if at_s > until_s:
                return
            if end_s <= at_s:
                _, number, start_s = heapq.heappop(self._ends)
                if self._running.get(str(number)) == start_s:
                    self.slurm.finish(str(number))
                    del self._running[str(number)], self._work_s[str(number)]
            elif self._next is not None:
                self._submit(self._next)
                self._next = next(self._arrivals, None)

    def _submit(self, trace: TraceJob) -> None:
        key = self.slurm.submit(
            Submission(
                self._ask(trace).request,
                user=trace.user,
                account=trace.account,
                partitions=(PARTITION,),
                name=trace.name,
                time_limit_s=trace.limit_s,
                comment=f"tiresias:placement={self._ask(trace).style.value}",
            )
        )
        self._trace_of[key], self._work_s[key] = trace, trace.duration_s

    def _decide(self) -> None:
        """Let cycles and scheduling passes alternate at this instant until nothing changes."""
        first: Mapping[str, Allocation] = {}
        for turn in range(MOST_TURNS):
            self._report()
            cycle = self.cycles.run(ENFORCE)
            chosen = {one.job_id: one.start_on for one in cycle.plan.starts}
            first = first or chosen
            # Where victims leave more than their preemptor needs, the next plan, in which they have
            # left, might choose other nodes for the jobs that start there too.
            self._chosen = {key: first.get(key, on) for key, on in chosen.items()}
            if turn == 0:
                self._tell(cycle.plan.decisions.values())
            changed = self._follow()
            self._start_as_planned()
            with mock.patch.object(Slurmctld, "place", lambda _, *asked: self._place(*asked)):
                self.slurm.schedule()
                self.slurm.advance(0.0)
            changed |= self._follow()
            if not changed and not cycle.outcome.writes:
                return
        raise AssertionError(f"{self.workload.name}: cycles at {self.now_s:g} s do not settle")

    def _report(self) -> None:
        """Let the nodes report what the jobs do, as they do in the simulation."""
        found: dict[int, JobProgress] = {}
        for job in self.slurm.observe().jobs:
            start_s, trace = self._running.get(job.key), self._trace_of[job.key]
            if start_s is None:
                continue
            saves = self.setup.costs.tells_saves(trace)
            tells = self._tells(trace)
            if not saves and not tells:
                continue
            left_s = self._work_s[job.key] - (self.now_s - start_s)
            ran_s = self._ran_s[job.key] + self.now_s - start_s
            saved_s = self._saved_s(job.key)
            found[job.raw_id] = JobProgress(
                restarts=job.restarts,
                source=ProgressSource.REPORTS,
                state="running",
                # Steps count on over all runs: protections of work that is done again are not
                # simulated.
                first_step=int(self._ran_s[job.key]),
                step=int(ran_s),
                total=int(ran_s + left_s) if tells else None,
                reported_s=self.slurm.clock.now_s,
                advanced_s=self.slurm.clock.now_s,
                quiet_after_s=FOREVER_S,
                per_step=Estimate(1.0, 1.0, 1.0),
                first_s=start_s,
                saved_s=saved_s if saves and saved_s else None,
                save_every_s=regular_s(self.setup.costs.save_every_s(trace)) if saves else None,
            )
        self._progress.latest = Latest(found, {})

    def _saved_s(self, key: str) -> float | None:
        """When a running job last saved, in this run; None if it has not."""
        every_s = regular_s(self.setup.costs.save_every_s(self._trace_of[key]))
        saves = every_s and math.floor((self.now_s - self._running[key]) / every_s)
        return self._running[key] + saves * every_s if every_s and saves else None

    def _tells(self, trace: TraceJob) -> bool:
        """Whether a job reports its progress."""
        reports = self.setup.reports
        who = reports.reporter(self.workload.name, trace.job_id) if reports else Reporter.SILENT
        return who is Reporter.HONEST

    def _measure(self, key: str, unsaved_s: float, saved_s: float | None) -> None:
        """Learn what a preemption cost, as the controller would from reports."""
        trace, costs = self._trace_of[key], self.setup.costs
        if not costs.tells_saves(trace) and not self._tells(trace):
            return
        every_s, restart_s = costs.save_every_s(trace), costs.restart_s(trace)
        cost = measured(restart_s, unsaved_s, saved_s, every_s)
        self._costs.add(trace.user, trace.name, cost)

    def _start_as_planned(self) -> None:
        """Start the planned jobs whose GPUs are idle already, in the order of the plan."""
        ctld = self.slurm._ctld
        pending = {record.spec.key: record for record in ctld.pending()}
        for key, chosen in self._chosen.items():
            record = pending.get(key)
            eligible = record and (record.begin_s or 0.0) <= ctld.now_s
            if record and eligible and self._is_free_for(key, chosen):
                ctld.start(record, chosen)

    def _is_free_for(self, key: str, chosen: Allocation) -> bool:
        """Whether a job can start there, on no GPUs that another job's victims have left for it.

        Of two jobs on the same nodes, the one whose victims leave later would take the GPUs of the
        other, which would then have preempted in vain.
        """
        if self._victims_leave(key):
            return False
        nodes = self.slurm._ctld.nodes
        return all(nodes[name].free_gpus >= one.gpu_count for name, one in chosen.items())

    def _victims_leave(self, preemptor: str = "") -> bool:
        """Whether the controller still waits for victims, of this job only if one is given."""
        preemptions = self.cycles.job_store.lifecycles.preemptions.values()
        return any(one.makes_room and preemptor in ("", one.preemptor) for one in preemptions)

    def _follow(self) -> bool:
        """Record what has started or been preempted; return whether anything has."""
        seen = self.slurm.observe().jobs
        now = {job.key: job for job in seen if job.state is JobState.RUNNING}
        left, came = self._running.keys() - now.keys(), now.keys() - self._running.keys()
        for key in left:
            start_s, end_s = self._running[key], self.now_s
            self._ran_s[key] += end_s - start_s
            saved_s = self._saved_s(key)
            if self.setup.costs.save_every_s(self._trace_of[key]) > 0.0:
                end_s = saved_s or start_s
            self._measure(key, self.now_s - end_s, saved_s)
            self._work_s[key] -= end_s - start_s
            del self._running[key]
            self._add("preempted", key)
        for key in came:
            self._running[key] = self.now_s
            heapq.heappush(self._ends, (self.now_s + self._work_s[key], int(key), self.now_s))
            self._add("start", key, _gpus(now[key].allocation))
        return bool(left or came)

    def _add(self, kind: str, key: str, nodes: tuple[tuple[str, int], ...] = ()) -> None:
        self.events.append(Event(self.now_s, kind, self._trace_of[key].job_id, nodes))

    def _tell(self, decisions: Iterable[object]) -> None:
        states = {job.key: job for job in self.slurm.observe().jobs}
        lines = []
        for one in decisions:
            status = states[one.job_id]  # type: ignore[attr-defined]
            trace = self._trace_of[status.key]
            lines.append(
                f"  job {trace.job_id}: {trace.gpus} GPUs, {status.slurm_state}"
                f" {dict(_gpus(status.allocation))}, tier {one.tier}, "  # type: ignore[attr-defined]
                f"{one.action.value}: {one.reason.value}"  # type: ignore[attr-defined]
            )
        self.told[self.now_s] = "\n".join(lines)


def _gpus(allocation: Allocation) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((node, amount.gpu_count) for node, amount in allocation.items()))


# The comparison


def differences(cluster: SimCluster, workload: Workload, case: Case) -> str:
    """Return "" if both do the same, or else the first difference with what surrounds it."""
    # A job's later reports say the same, which the simulation need not know.
    with replaced(case.constants), mock.patch.object(sim_reports, "SETTLED", -1.0):
        return _differences(workload, setup_of(cluster, case))


def paper_differences(seed: int, case: Case, jobs: int = 480) -> str:
    """Compare the two on the first jobs of the paper's."""
    policy = replace(case.config.policy, thresholds_gpu_s=(3250.0, 12500.0))
    case = case._replace(config=replace(case.config, policy=policy))
    cluster, workload = paper_case(seed)
    return differences(cluster, replace(workload, jobs=workload.jobs[:jobs]), case)


def _differences(workload: Workload, setup: Setup) -> str:
    wanted, ticks_s = simulated(workload, setup)
    folder = Path(tempfile.mkdtemp(prefix="start-for-start-", dir=IN_MEMORY))
    try:
        with closing(Ledger(folder / "ledger")) as ledger:
            controlled = Controlled(workload, setup, ledger, ticks_s)
            found = controlled.run()
    finally:
        shutil.rmtree(folder)
    if found == wanted:
        return ""
    at_s = min(event.at_s for event in set(found) ^ set(wanted))
    both = set(found) & set(wanted)
    return "\n".join(
        [
            f"{workload.name}, {setup.cluster.gpus} GPUs: at {at_s:g} s, of {len(wanted)} events, "
            f"{len(set(wanted) - both)} are the simulator's alone and "
            f"{len(set(found) - both)} the controller's",
            *(f"  simulator:  {event}" for event in wanted if event.at_s == at_s),
            *(f"  controller: {event}" for event in found if event.at_s == at_s),
            "The controller's first cycle then:",
            controlled.told.get(at_s, "  none"),
        ]
    )


def _seeds(text: str) -> Sequence[int]:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    """Compare and print, for each of the settings, the first difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=_seeds, default=range(1, 21))
    parser.add_argument("--settings", choices=(*FEATURES, ALL, RANDOM), action="append")
    parser.add_argument("--paper480", action="store_true")
    args = parser.parse_args()
    for name in args.settings or FEATURES:
        found = []
        for seed in args.seeds:
            case = configured(name, seed)
            if args.paper480:
                found.append(paper_differences(seed, case))
            else:
                found.append(differences(*random_case(seed), case))
        differing = [
            f"seed {seed}, {one}" for seed, one in zip(args.seeds, found, strict=True) if one
        ]
        print(f"{name}: {len(differing)} of {len(found)} workloads differ", flush=True)
        if differing:
            print(min(differing, key=len), flush=True)


if __name__ == "__main__":
    main()
