"""The diagrams: a controller's cycle, the two state machines, and the tiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scripts.tools.pictures.svg import PALETTES, Drawing, Palette, Point
from slurm_tiresias.controller.bands import BAND, NOMINATED, TOP_TIER
from slurm_tiresias.core.lifecycle.nomination import NominationState
from slurm_tiresias.core.lifecycle.preemption import MAX_SIGNAL_REFUSALS, PreemptionState
from slurm_tiresias.settings import Config

WIDTH = 720


def cycle(palette: Palette) -> str:
    """Draw the six steps of a cycle, with what they read from Slurm and write to it."""
    drawing = Drawing(WIDTH, 310, "The cycle of the controller", palette)
    drawing.frame((8, 8), (704, 206), "tiresias-slurm controller")
    steps = (
        ("1 Observe", ("jobs, nodes,", "Slurm's clock"), "main"),
        ("2 Account", ("service that", "each job got"), "plain"),
        ("3 Review", ("what is", "under way"), "plain"),
        ("4 Decide", ("starts and", "preemptions"), "plain"),
        ("5 Act", ("where Slurm", "differs"), "bad"),
        ("6 Publish", ("for status", "and the page"), "plain"),
    )
    width, gap, top, height = 103.0, 13.0, 64.0, 72.0
    middle = [20 + width / 2 + number * (width + gap) for number in range(len(steps))]
    for x, (title, lines, kind) in zip(middle, steps, strict=True):
        drawing.box((x - width / 2, top), (width, height), title, lines, kind=kind)
    for x in middle[1:]:
        drawing.arrow((x - width / 2 - gap, 100), (x - width / 2 - 1, 100))
    drawing.arrow((middle[5], top), (middle[5], 44), (middle[0], 44), (middle[0], top - 1))
    pause = f"again after {Config().controller.interval_s:g} s, or sooner if a job comes or ends"
    drawing.text(((middle[0] + middle[5]) / 2 + 40, 37), pause, size=12.5, faint=True)

    left, right = middle[1] - width / 2, middle[4] + 8
    drawing.box((left, 166), (right - left, 36), "Ledger: service, intents, states")
    for x in (middle[1], middle[2], middle[4] - 18):
        drawing.arrow((x, top + height), (x, 165))

    drawing.box((8, 256), (704, 44), "Slurm: slurmctld and slurmdbd", kind="good")
    drawing.arrow((middle[0], 255), (middle[0], top + height + 1))
    drawing.label((middle[0] + 10, 239), "squeue, scontrol show, sacct", anchor="start")
    drawing.arrow((middle[4] + 30, top + height), (middle[4] + 30, 255))
    drawing.label((middle[4] + 20, 239), "priorities, node lists, requeues", anchor="end")
    drawing.text((middle[4] + 40, 239), "not in shadow mode", anchor="start", size=12.5, faint=True)
    return drawing.svg()


def preemption(palette: Palette) -> str:
    """Draw the states of ``core/lifecycle/preemption.py`` and the events between them."""
    drawing = Drawing(WIDTH, 530, "The states of a preemption", palette)
    states = (
        (PreemptionState.PLANNED, (40, 56), "not signalled yet", "main"),
        (PreemptionState.SIGNALLED, (480, 56), "saves its state", "bad"),
        (PreemptionState.REQUEUE_SENT, (480, 194), "Slurm may not show it yet", "bad"),
        (PreemptionState.REQUEUED, (40, 194), "Slurm delays its start", "main"),
        (PreemptionState.CALLED_OFF, (480, 318), "may still requeue itself", "plain"),
    )
    for state, place, line, kind in states:
        drawing.box(place, (190, 60), state.name, (line,), kind=kind, code=True)
    drawing.dot((135, 14))
    drawing.arrow((135, 22), (135, 55))
    drawing.label((147, 40), "Planned", anchor="start")
    drawing.arrow((230, 74), (479, 74))
    drawing.label((355, 49), "PreemptorTried", "Slurm finds that it lacks only GPUs")
    drawing.arrow((480, 98), (231, 98))
    drawing.label((355, 115), "SignalRefused, SignalUnanswered")
    drawing.arrow((640, 116), (640, 193))
    drawing.label((630, 144), "GraceOver,", "for all victims", "of the job", anchor="end")
    drawing.loop((610, 56), -26, -34)
    drawing.label((574, 36), "Saved", anchor="end")
    drawing.arrow((480, 224), (231, 224))
    drawing.label((355, 216), "Requeued")
    drawing.arrow((495, 116), (495, 174), (215, 174), (215, 193))
    drawing.label((370, 168), "Requeued, by itself")
    drawing.loop((610, 254), 26, 34)
    drawing.label((570, 278), "GraceOver", anchor="middle")
    drawing.arrow((100, 194), (100, 117))
    drawing.label((112, 160), "Planned, for another job", anchor="start")
    drawing.arrow((135, 254), (135, 280))
    drawing.dot((135, 292), final=True)
    drawing.label((157, 276), "Running or Resumed:", "it runs or waits again", anchor="start")

    drawing.arrow((500, 254), (500, 317))
    drawing.arrow((670, 86), (698, 86), (698, 348), (671, 348))
    drawing.label((490, 306), "PreemptorGone", anchor="end")
    drawing.arrow((480, 336), (70, 336), (70, 255))
    drawing.label((320, 330), "Requeued, by itself")
    drawing.arrow((480, 364), (18, 364), (18, 86), (39, 86))
    drawing.label((260, 358), "Planned, for another job")
    drawing.arrow((575, 378), (575, 398))
    drawing.dot((575, 410), final=True)
    drawing.label((563, 396), "SignalExpired", anchor="end")

    drawing.rule((40, 428), (680, 428), faint=True)
    drawing.label(
        (40, 450),
        "Abandoned before the requeue, by any of these events (SignalRefused: "
        f"{MAX_SIGNAL_REFUSALS} in a row):",
        "PreemptorGone, Ended, NotRunning, RequeueRefused, SignalRefused, StoodDown",
        anchor="start",
    )
    drawing.label(
        (40, 498),
        "For idle GPUs and hung jobs, without a preemptor:",
        "Leaves plans it, StillLeaves leads to SIGNALLED, Spared abandons it",
        anchor="start",
    )
    return drawing.svg()


def nomination(palette: Palette) -> str:
    """Draw the states of ``core/lifecycle/nomination.py`` and the events between them."""
    drawing = Drawing(WIDTH, 372, "The states of a nomination", palette)
    states = (
        (NominationState.PENDING, (20, 92), "other jobs hold its GPUs", "main"),
        (NominationState.ASKED, (280, 92), "victims are leaving", "bad"),
        (NominationState.FREE, (540, 92), "Slurm may start the job", "good"),
        (NominationState.EXPIRED, (280, 250), "backs off", "plain"),
    )
    for state, place, line, kind in states:
        drawing.box(place, (160, 60), state.name, (line,), kind=kind, code=True)
    drawing.dot((100, 20))
    drawing.arrow((100, 28), (100, 91))
    drawing.label((112, 50), "Nominated,", "needs victims", anchor="start")
    drawing.arrow((108, 20), (620, 20), (620, 91))
    drawing.label((608, 50), "Nominated,", "on idle GPUs", anchor="end")

    drawing.arrow((180, 112), (279, 112))
    drawing.label((230, 87), "StillWaiting", "nodes in use")
    drawing.arrow((280, 132), (181, 132))
    drawing.label((230, 149), "StillWaiting", "not tried")
    drawing.arrow((440, 122), (539, 122))
    drawing.label((490, 97), "StillWaiting", "GPUs are free")
    drawing.arrow((140, 152), (140, 200), (560, 200), (560, 153))
    drawing.label((250, 193), "StillWaiting, GPUs are free")

    drawing.arrow((100, 152), (100, 270), (279, 270))
    drawing.label((190, 246), "StillWaiting, past", "start_bound_s")
    drawing.arrow((620, 152), (620, 270), (441, 270))
    drawing.label((530, 246), "StillWaiting, past", "start_bound_s")
    drawing.arrow((360, 152), (360, 249))
    drawing.label((370, 222), "StillWaiting, in use for too long", anchor="start")
    drawing.arrow((280, 294), (60, 294), (60, 153))
    drawing.label((170, 310), "Nominated, after its back-off")
    drawing.arrow((440, 294), (660, 294), (660, 153))
    drawing.label((550, 310), "Nominated, after its back-off")

    drawing.rule((20, 330), (700, 330), faint=True)
    drawing.text(
        (20, 350),
        "In every state: Started ends it; Expired leads to EXPIRED; Withdrawn ends it, but not an "
        "earlier back-off.",
        anchor="start",
        size=12.5,
        faint=True,
    )
    return drawing.svg()


def tiers(palette: Palette) -> str:
    """Draw the tiers over GPUs and running time, and the bands of priorities they become."""
    drawing = Drawing(WIDTH, 392, "Tiers by GPUs and running time, and their priorities", palette)
    limits_h = [threshold / 3600 for threshold in Config().policy.thresholds_gpu_s]
    left, right, top, bottom = 66.0, 424.0, 50.0, 346.0
    most_gpus, least_h, most_h = 64, 1 / 60, 1000.0

    def x_of(gpus: float) -> float:
        return left + (right - left) * math.log(gpus) / math.log(most_gpus)

    def y_of(hours: float) -> float:
        return top + (bottom - top) * math.log(hours / least_h) / math.log(most_h / least_h)

    def edge(gpu_hours: float) -> tuple[Point, Point]:
        """Where the jobs are that have attained so much, from 1 GPU to the most."""
        return tuple(  # type: ignore[return-value]
            (x, min(max(y_of(gpu_hours / gpus), top), bottom))
            for x, gpus in ((left, 1), (right, most_gpus))
        )

    drawing.text((left, 22), "GPU-hours so far decide the tier", anchor="start", bold=True)
    edges = [edge(least_h), *map(edge, limits_h), ((left, bottom), (right, bottom))]
    edges[0] = ((left, top), (right, top))
    slope = math.degrees(math.atan2(y_of(1) - y_of(64), right - left))
    names = tier_names(limits_h)
    for number, (above, below) in enumerate(pairwise(edges)):
        drawing.area((*above, *reversed(below)), palette.scale[number % len(palette.scale)])
    for limit_h in limits_h:
        drawing.rule(*edge(limit_h))
    for number, name in enumerate(names):
        gpu_hours = (limits_h[number - 1] if number else limits_h[0] / 4) * 2
        at = (x_of(8), y_of(gpu_hours / 8) + 5)
        drawing.text(at, f"tier {number}: {name}", size=12.5, turned=slope)
    for gpus in (1, 2, 4, 8, 16, 32, 64):
        drawing.rule((x_of(gpus), bottom), (x_of(gpus), bottom + 5))
        drawing.text((x_of(gpus), bottom + 19), f"{gpus}", size=12.5, faint=True)
    for hours, name in (
        (1 / 60, "1 min"),
        (1 / 6, "10 min"),
        (1, "1 h"),
        (10, "10 h"),
        (100, "100 h"),
        (1000, "1000 h"),
    ):
        drawing.rule((left - 5, y_of(hours)), (left, y_of(hours)))
        drawing.text((left - 9, y_of(hours) + 4), name, anchor="end", size=12.5, faint=True)
    drawing.text(((left + right) / 2, bottom + 38), "GPUs of the job", size=12.5)
    drawing.text((12, (top + bottom) / 2), "time it has run", size=12.5, turned=-90)

    x, width, height = 476.0, 224.0, 36.0
    drawing.text((x, 22), "Slurm starts by priority", anchor="start", bold=True)
    y = top
    priorities = [("starts next", NOMINATED, palette.fills["good"][0])]
    priorities += [
        (f"tier {number}", TOP_TIER - number * BAND, palette.scale[number % len(palette.scale)])
        for number in range(len(names))
    ]
    for name, priority, fill in priorities:
        drawing.area(((x, y), (x + width, y), (x + width, y + height), (x, y + height)), fill)
        drawing.text((x + 10, y + 23), name, anchor="start", size=12.5, bold=True)
        drawing.text((x + width - 10, y + 23), f"from {priority:,}", anchor="end", size=12.5)
        y += height + 4
    drawing.text(
        (x, y + 14), "lower: jobs that it does not manage", anchor="start", size=12.5, faint=True
    )
    return drawing.svg()


def tier_names(limits_h: Sequence[float]) -> list[str]:
    """Return the range of each tier in GPU-hours."""
    between = [f"{low:g} to {high:g} GPU-hours" for low, high in pairwise(limits_h)]
    return [f"below {limits_h[0]:g} GPU-hours", *between, f"from {limits_h[-1]:g} GPU-hours"]


DIAGRAMS: Mapping[str, Callable[[Palette], str]] = {
    "cycle": cycle,
    "preemption": preemption,
    "nomination": nomination,
    "tiers": tiers,
}


def files() -> dict[str, str]:
    """Return the text of each file in docs/images that is a diagram."""
    return {
        f"{name}-{theme}.svg": draw(palette)
        for name, draw in DIAGRAMS.items()
        for theme, palette in PALETTES.items()
    }
