"""The tables of a replay: seconds, ratios next to the paper's, and the simulator next to Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scripts.tools.bench.replay.figures import Compared, Measures
from scripts.tools.bench.replay.limits import USERS, in_minutes
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.bench.replay.store import Head, Replayed
from scripts.tools.document import markdown

REFERENCE = "tiresias-l"
NOTHING = "–"

PREEMPTION_S = 13_724 / 221
"""Cost of one preemption on the paper's testbed under Tiresias-L (page 495), in seconds."""

COLUMNS = {
    "average_jct_s": "average JCT",
    "median_jct_s": "median",
    "p95_jct_s": "95th",
    "makespan_s": "makespan",
    "average_wait_s": "queueing delay: average",
    "median_wait_s": "its median",
    "p95_wait_s": "its 95th",
    "preemptions": "preemptions",
    "SS": "average, short small",
    "SL": "long small",
    "LS": "short wide",
    "LL": "long wide",
}
CHECKED = ("average_jct_s", "median_jct_s", "p95_jct_s", "makespan_s", "preemptions")

PAPER: Mapping[str, Measures] = {
    "yarn-cs": {
        "average_jct_s": 8870,
        "median_jct_s": 8460,
        "p95_jct_s": 17100,
        "makespan_s": 33270,
        "average_wait_s": 8146,
        "median_wait_s": 7464,
        "p95_wait_s": 15327,
        "preemptions": 0,
    },
    "tiresias-l": {
        "average_jct_s": 1580,
        "median_jct_s": 314,
        "p95_jct_s": 10100,
        "makespan_s": 27400,
        "average_wait_s": 963,
        "median_wait_s": 13,
        "p95_wait_s": 7755,
        "preemptions": 221,
        "SS": 300,
    },
    "tiresias-g": {
        "average_jct_s": 1717,
        "median_jct_s": 321,
        "p95_jct_s": 10582,
        "makespan_s": 27510,
        "average_wait_s": 1005,
        "median_wait_s": 39,
        "p95_wait_s": 7933,
        "preemptions": 297,
        "SS": 330,
    },
}
"""From pages 493 to 495; the completion times are measured off Fig. 10a."""

PAPER_RATIOS: Mapping[str, Measures] = {
    "yarn-cs": {
        "average_jct_s": 5.5,
        "median_jct_s": 27,
        "p95_jct_s": 1.66,
        "makespan_s": 1.21,
        "SS": 27.6,
        "SL": 5.5,
        "LS": 3.2,
        "LL": 1.1,
    },
    "tiresias-g": {
        "average_jct_s": 1.06,
        "median_jct_s": 1.05,
        "p95_jct_s": 1.03,
        "makespan_s": 1.00,
        "SS": 1.1,
        "SL": 1.2,
        "LS": 1.0,
        "LL": 1.0,
    },
}
"""Ratios to Tiresias-L (pages 493 to 495, bins from Fig. 10b)."""

MOST_OFF = 0.05
"""Largest relative difference allowed between simulated and real average JCT."""


def body(them: Compared, runs: Mapping[str, Replayed]) -> str:
    parts = (
        "### In seconds",
        markdown(("", "over the bound", *COLUMNS.values()), list(_seconds(them))),
        "### In multiples of Tiresias-L",
        markdown(_RATIO_HEADER, list(_ratios(them))),
        "### The simulator beside the real Slurm",
        markdown(("policy", "", "real", "simulated", "off"), list(_beside(them))),
        "\n".join(f"- {line}" for line in verdicts(them)),
        " ".join(_sentences(them, runs)),
    )
    return "\n\n".join(part for part in parts if part)


# The tables


def _seconds(them: Compared) -> Iterator[Sequence[str]]:
    for name, real in them.real.items():
        yield (f"{name}, real", *_amounts(real, them.bound_s))
    for name in them.foreseen:
        yield (f"{name}, simulated", *_amounts(them.foreseen[name], them.bound_s))
    yield ("lower bound", "1.00", f"{them.bound_s:,.0f}", *[""] * (len(COLUMNS) - 1))
    for name, paper in PAPER.items():
        yield (f"{name}, the paper's testbed", "", *_amounts(paper, None)[1:])


def _amounts(measures: Measures, bound_s: float | None) -> list[str]:
    over = "" if bound_s is None else f"{measures['average_jct_s'] / bound_s:.2f}"
    shown = (f"{measures[name]:,.0f}" if name in measures else "" for name in COLUMNS)
    return [over, *shown]


_RATIO_HEADER = ("policy", "", "real", "simulated", "without overhead", "paper")


def _ratios(them: Compared) -> Iterator[Sequence[str]]:
    for name in (name for name in them.foreseen if name != REFERENCE):
        for measure, title in COLUMNS.items():
            if measure == "preemptions" or measure.endswith("_wait_s"):
                continue
            yield (
                name,
                title,
                *(
                    _amount(ratio(side, name, measure))
                    for side in (them.real, them.foreseen, them.ideal)
                ),
                _amount(PAPER_RATIOS.get(name, {}).get(measure)),
            )


def ratio(side: Mapping[str, Measures], policy: str, measure: str) -> float | None:
    """Return the ratio to Tiresias-L; None if one of the two has not run or has no such jobs."""
    over, under = (side.get(name, {}).get(measure) for name in (policy, REFERENCE))
    return over / under if over is not None and under else None


def _amount(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _beside(them: Compared) -> Iterator[Sequence[str]]:
    for name, real in them.real.items():
        for measure in CHECKED:
            simulated = them.foreseen[name][measure]
            if not real[measure]:
                continue
            off = f"{simulated / real[measure] - 1:+.1%}"
            yield (name, COLUMNS[measure], f"{real[measure]:,.0f}", f"{simulated:,.0f}", off)


# Text


def verdicts(them: Compared) -> Iterator[str]:
    """Say for each policy that has run whether its simulation is close enough."""
    for name, real in them.real.items():
        off = them.foreseen[name]["average_jct_s"] / real["average_jct_s"] - 1
        verdict = "within" if abs(off) <= MOST_OFF else "NOT WITHIN"
        yield f"average JCT of {name}: simulated {off:+.1%} off the real, {verdict} {MOST_OFF:.0%}."


def cost(head: Head) -> str:
    """Describe the measured cost of a preemption, and the factor chosen for it."""
    setting, measured = head.setting, head.calibration
    chosen = "chosen by that" if head.factor_chosen else "given on the command line"
    return (
        f"Measured before: a preempted job runs again {measured.restart_s:.2f} s after it stopped "
        f"where there is room (mean of {measured.preemptions}). The paper's testbed lost "
        f"{PREEMPTION_S:.1f} s to a preemption; the factor of {setting.factor:g} was {chosen}, and "
        f"with it a preemption here weighs {measured.restart_s * setting.factor:.0f} s"
        + (
            f", to which the job's own program adds {setting.load_s:.0f} s of loading."
            if setting.load_s
            else "."
        )
    )


def limits(setting: Setting) -> str:
    """Describe the time limits of the jobs."""
    if setting.limits == USERS:
        return (
            "a quarter of the jobs with a time limit of a day, the others with the next usual "
            "value (15 or 30 minutes, 1, 2, 4, 8, 12 hours, a day) of what they need over an "
            "evenly drawn share, all divided by the factor and rounded up to Slurm's whole minutes"
        )
    (limit_min,) = {in_minutes(job.limit_s or 0.0) for job in setting.workload().jobs}
    return (
        f"every job with a time limit of {limit_min} minutes, a day at full length, as users that "
        "do not know better take what the partition allows"
    )


def _setup(head: Head) -> Iterator[str]:
    setting = head.setting
    yield (
        f"The first {setting.jobs} jobs of paper480:{setting.seed} on {setting.nodes} nodes of "
        f"{setting.gpus} GPUs, {setting.factor:g} times as fast, times given as they would be at "
        "full length. `real` is slurmctld, slurmdbd and a slurmd for each node on this machine, a "
        "fresh cluster for each policy, jobs submitted by sbatch at their times, completion times "
        "from the jobs' own journals."
    )


def _course(runs: Mapping[str, Replayed]) -> Iterator[str]:
    for machine in sorted({replayed.machine for replayed in runs.values()}):
        took = (
            f"{name} {replayed.took_s / 60:.0f} minutes"
            for name, replayed in runs.items()
            if replayed.machine == machine
        )
        yield f"It took {', '.join(took)} on {machine}."
    for name, replayed in runs.items():
        yield from (f"FAULT under {name}: {fault}." for fault in replayed.faults)


def _sentences(them: Compared, runs: Mapping[str, Replayed]) -> Iterator[str]:
    setting, measured = them.head.setting, them.head.calibration
    yield from _setup(them.head)
    yield (
        "`yarn-cs` is sched/builtin with priority/basic, its jobs on the fewest nodes they fit; "
        f"`slurm` is priority/multifactor and sched/backfill, {limits(setting)}; the "
        "Tiresias run the controller beside it with etc/slurm.conf.example and "
        f"etc/job_submit.lua, one threshold at {setting.thresholds_gpu_s[0]:g} GPU-s "
        "(`six-tiers`: Tiresias-L with the thresholds that the controller has by default; "
        "`all-report` and `half-report`: the same, with jobs that report through the plugin and "
        f"the job library) and at least {setting.min_run_s:g} s of running before a preemption, "
        f"both divided by the factor, and an interval of {setting.interval_s:g} s, which is not. "
        "Tiresias-G learns the distribution of jobs from those that have ended; the simulated one "
        "knows it."
    )
    yield cost(them.head)
    yield (
        "That cost is time the job waits for Slurm while others use its GPUs; on the testbed "
        "they stood still meanwhile. Placement changes no job's speed in the real runs, nor in "
        "their simulation."
    )
    yield (
        "`simulated` is the simulator with the measured delays (jobs on idle GPUs start after "
        f"{measured.idle_start_s:.2f} s, those that another leaves for after "
        f"{measured.preempting_start_s:.2f} s), the mean of 20 runs that begin at other moments of "
        "the interval; `without overhead` counts GPUs only and neither waits nor restarts, as the "
        "paper's simulator. `lower bound`: no scheduler's average is below it, see "
        "[simulator.md](../../docs/explanation/simulator.md). A wide job has more than 4 GPUs, a "
        "short one takes less than 800 s. The paper's completion times are read off its Fig. 10a."
    )
    yield from _course(runs)
