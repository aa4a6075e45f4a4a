"""The tables of a replay: seconds, ratios next to the paper's, and the simulator next to Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scripts.tools.bench.replay.figures import Compared, Measures
from scripts.tools.bench.replay.jobs import in_minutes
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.bench.replay.store import Head, Replayed
from scripts.tools.document import markdown
from slurm_tiresias.simulator.limits import LIMIT_MODELS, USERS

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
RATIOS = ("average_jct_s", "median_jct_s", "p95_jct_s", "makespan_s", "SS", "SL", "LS", "LL")

PAPER: Mapping[str, Measures] = {
    name: dict(zip(COLUMNS, values, strict=False))
    for name, *values in (
        ("yarn-cs", 8870, 8460, 17100, 33270, 8146, 7464, 15327, 0),
        ("tiresias-l", 1580, 314, 10100, 27400, 963, 13, 7755, 221, 300),
        ("tiresias-g", 1717, 321, 10582, 27510, 1005, 39, 7933, 297, 330),
    )
}
"""From pages 493 to 495; the completion times are measured off Fig. 10a."""

PAPER_RATIOS: Mapping[str, Measures] = {
    "yarn-cs": dict(zip(RATIOS, (5.5, 27, 1.66, 1.21, 27.6, 5.5, 3.2, 1.1), strict=True)),
    "tiresias-g": dict(zip(RATIOS, (1.06, 1.05, 1.03, 1.0, 1.1, 1.2, 1.0, 1.0), strict=True)),
}
"""Ratios to Tiresias-L (pages 493 to 495, bins from Fig. 10b)."""

MOST_OFF = 0.05
"""Largest relative difference allowed between simulated and real average JCT."""


def body(them: Compared, runs: Mapping[str, Replayed]) -> str:
    parts = (
        "### In seconds",
        markdown(("", "over the bound", *COLUMNS.values()), list(_seconds(them))),
        "### In multiples of Tiresias-L",
        markdown(
            ("policy", "", "real", "simulated", "without overhead", "paper"), [*_ratios(them)]
        ),
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


def _ratios(them: Compared) -> Iterator[Sequence[str]]:
    for name in (name for name in them.foreseen if name != REFERENCE):
        for measure in RATIOS:
            sides = (ratio(each, name, measure) for each in (them.real, them.foreseen, them.ideal))
            all_sides = (*sides, PAPER_RATIOS.get(name, {}).get(measure))
            yield (name, COLUMNS[measure], *map(_amount, all_sides))


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
        drawn = LIMIT_MODELS[USERS][1]
        return f"time limits are {drawn}, all divided by the factor and rounded up to minutes"
    (limit_min,) = {in_minutes(job.limit_s or 0.0) for job in setting.workload().jobs}
    return (
        f"every job with a time limit of {limit_min} minutes, a day at full length, as users that "
        "do not know better take what the partition allows"
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
    yield (
        f"The first {setting.jobs} jobs of paper480:{setting.seed} on {setting.nodes} nodes of "
        f"{setting.gpus} GPUs, {setting.factor:g} times as fast, times given as they would be at "
        f"full length. For `slurm`, {limits(setting)}; the Tiresias have one threshold at "
        f"{setting.thresholds_gpu_s[0]:g} GPU-s (`six-tiers` and those below it: the default "
        f"thresholds) and {setting.min_run_s:g} s of running before a preemption, both divided by "
        f"the factor, and an interval of {setting.interval_s:g} s, which is not. {cost(them.head)} "
        "Jobs on idle GPUs started after "
        f"{measured.idle_start_s:.2f} s, those that another leaves for after "
        f"{measured.preempting_start_s:.2f} s. `without overhead` counts GPUs only and neither "
        "waits nor restarts, as the paper's simulator, whose completion times are read off Fig. "
        "10a. What is compared, and the lower bound: "
        "[simulator.md](../../docs/explanation/simulator.md#compared-with-a-real-slurm)."
    )
    yield from _course(runs)
