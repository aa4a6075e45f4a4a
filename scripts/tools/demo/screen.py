"""The demo's output: a live picture or periodic lines, a table, and the schedules as bars."""

from __future__ import annotations

import html
import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scripts.tools.demo.jobs import OTHER_USER, Run, Sample
from scripts.tools.demo.measure import Result
from scripts.tools.demo.mix import GPUS_PER_NODE, MOST_GPUS, NODES, Job

LINE_EVERY_S = 10.0
WIDTH = 80
COLUMNS = 74
"""Characters of a schedule in the terminal, beside the margin."""
COLOURS = {
    "short, small": "#4c9be8",
    "long, small": "#2f6f4f",
    "short, wide": "#f2c14e",
    "long, wide": "#c8452f",
}
IDLE = "#30363d"
LETTERS = dict(zip(COLOURS, "sSwW", strict=True))
"""For terminals without colours: capital letters are long, w is wide."""
BLOCKS = " ▁▂▃▄▅▆▇█"

PX_PER_S, PX_PER_GPU, LEFT_PX = 6.0, 9, 30
PX_PER_NODE = GPUS_PER_NODE * PX_PER_GPU
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>The demo's schedules</title>
<style>body {{ font: 14px system-ui, sans-serif; margin: 2em; max-width: 75em; color: #1f2328 }}
h2 {{ margin: 1.2em 0 .2em; font-size: 1.1em }} svg {{ max-width: 100%; height: auto }}
pre {{ font: 13px ui-monospace, monospace; overflow-x: auto }}
i {{ display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -2px }}
</style>
<h1>The same jobs on three clusters</h1>
<p>{what}</p>
<p>{legend}<i style="background: #d0d7de"></i>idle</p>
{runs}
<pre>{table}</pre></html>
"""


def screen() -> Console:
    """Return a console on stderr, since stdout is for the result."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def output() -> Console:
    """Return a console on stdout, as wide as promised where it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


@contextmanager
def progress(console: Console, jobs: int) -> Iterator[Callable[[Sequence[Run]], None]]:
    """Yield a function that shows the progress of the runs: live, or now and then in a log."""
    began_s = last_s = time.monotonic()

    def lines(runs: Sequence[Run]) -> str:
        head = f"after {time.monotonic() - began_s:.0f} s"
        return "\n".join([head, *(f"  {each.name:22} {in_words(each, jobs)}" for each in runs)])

    def log(runs: Sequence[Run]) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= LINE_EVERY_S:
            last_s = time.monotonic()
            console.print(lines(runs))

    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield lambda runs: live.update(lines(runs))
    else:
        yield log


def in_words(run: Run, jobs: int) -> str:
    now = run.samples[-1]
    return (
        f"{now.finished:2}/{jobs} done, {now.busy_gpus:2}/{MOST_GPUS} GPUs, "
        f"{now.waiting:2} wait, {now.preemptions:2} preempted"
    )


def show_schedules(console: Console, runs: Sequence[Run]) -> None:
    """Print each run's GPUs over time, on one scale."""
    colours, until_s = console.color_system is not None, end_s(runs)
    slice_s = until_s / COLUMNS
    for each in runs:
        console.print(f"\n{each.name}, {each.samples[-1].at_s:.0f} s", style="bold")
        console.print(schedule(each, colours, slice_s))
    text = Text("    ")
    for kind, shade in COLOURS.items():
        text.append("██" if colours else LETTERS[kind], shade).append(f" {kind}  ", "default")
    console.print(text.append("below: queue\n"))


def end_s(runs: Sequence[Run]) -> float:
    return max(each.samples[-1].at_s for each in runs)


def schedule(run: Run, colours: bool, slice_s: float) -> Text:
    """Return a line for two GPUs, or for each as letters without colours, and one for the queue."""
    newest = {int(sample.at_s / slice_s): sample for sample in run.samples}
    shown = [newest[number] for number in sorted(newest)]
    text = Text(no_wrap=True)
    for gpu in range(0, MOST_GPUS, 2 if colours else 1):
        text.append(f"n{gpu // GPUS_PER_NODE + 1}  " if gpu % GPUS_PER_NODE == 0 else "    ")
        for sample in shown:
            if colours:
                upper, lower = (colour(sample.holders[gpu + part]) for part in (0, 1))
                text.append("▀", f"{upper} on {lower}")
            else:
                text.append(letter(sample.holders[gpu]))
        text.append("\n")
    most = max(sample.waiting for sample in shown) or 1
    queue = "".join(BLOCKS[-(-8 * sample.waiting // most)] for sample in shown)
    return text.append(f"    {queue}")


def letter(holder: Job | None) -> str:
    return LETTERS[holder.kind] if holder else "."


def colour(holder: Job | None) -> str:
    return COLOURS[holder.kind] if holder else IDLE


def result_table(results: Mapping[str, Result], kinds: Mapping[str, int]) -> Table:
    table = Table(title="Job completion times (JCT); one second stands for five minutes")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    first, *others = results.values()

    def add(name: str, of: Mapping[int, float] | Sequence[float]) -> None:
        stock_s, *times_s = of[0], *(of[number] for number in range(1, len(results)))
        cells = [f"{time_s:.1f} s {change(stock_s, time_s):+5.0%}" for time_s in times_s]
        table.add_row(name, f"{stock_s:.1f} s", *cells)

    every = [first, *others]
    add("average JCT", [one.average_jct_s for one in every])
    for kind in first.average_jct_s_by_kind:
        add(f"  {kind} ({kinds[kind]})", [one.average_jct_s_by_kind[kind] for one in every])
    for number, name in enumerate(users()):
        if len(users()) > 1:
            add(f"  user {name}", [one.average_jct_s_by_user[number] for one in every])
    add("median JCT", [one.median_jct_s for one in every])
    add("95th percentile", [one.p95_jct_s for one in every])
    add("makespan", [one.makespan_s for one in every])
    table.add_row("preemptions", *(str(one.preemptions) for one in every))
    table.add_row("GPU use", *(f"{one.gpu_use:.0%}" for one in every))
    table.add_row("work done again", *(f"{one.again_share:.1%}" for one in every))
    return table


def users() -> tuple[str, ...]:
    own = pwd.getpwuid(os.getuid()).pw_name
    return (own, OTHER_USER) if os.geteuid() == 0 else (own,)


def change(stock: float, ours: float) -> float:
    """Return how much longer a time is, as a share of stock Slurm's."""
    return ours / stock - 1 if stock else 0.0


def page(runs: Sequence[Run], what: str, table: Table) -> str:
    """Return the schedules as a page with a picture of each."""
    plain = Console(width=WIDTH, color_system=None)
    with plain.capture() as captured:
        plain.print(table)
    marks = (f'<i style="background: {shade}"></i>{kind}' for kind, shade in COLOURS.items())
    drawn = "\n".join(f"<h2>{each.name}</h2>\n{svg(each, end_s(runs))}" for each in runs)
    return PAGE.format(
        what=what, legend="".join(marks), runs=drawn, table=html.escape(captured.get())
    )


def svg(run: Run, until_s: float) -> str:
    width, height = LEFT_PX + until_s * PX_PER_S, MOST_GPUS * PX_PER_GPU + 20
    parts = [
        f'<text y="{(node + 0.6) * PX_PER_NODE:.0f}" font-size="11">n{node + 1}</text>'
        for node in range(NODES)
    ]
    for gpu in range(MOST_GPUS):
        for begin_s, end_s, job in stretches(run.samples, gpu):
            fill = COLOURS[job.kind] if job else "#d0d7de"
            what = f"{job.name}: {job.kind}, {job.gpus} GPUs" if job else "idle"
            parts.append(
                f'<rect x="{LEFT_PX + begin_s * PX_PER_S:.1f}" y="{gpu * PX_PER_GPU}" '
                f'width="{(end_s - begin_s) * PX_PER_S - 0.5:.1f}" height="{PX_PER_GPU - 1}" '
                f'fill="{fill}"><title>{what}</title></rect>'
            )
    parts += [
        f'<text x="{LEFT_PX + at_s * PX_PER_S:.0f}" y="{height - 5}" font-size="11">{at_s} s</text>'
        for at_s in range(0, int(until_s), 20)
    ]
    return f'<svg viewBox="0 0 {width:.0f} {height}" role="img">{"".join(parts)}</svg>'


def stretches(samples: Sequence[Sample], gpu: int) -> Iterator[tuple[float, float, Job | None]]:
    """Yield from when to when each job held a GPU, as far as was seen."""
    pairs = zip(samples, [*samples[1:], samples[-1]], strict=True)
    for job, same in groupby(pairs, key=lambda pair: pair[0].holders[gpu]):
        seen = list(same)
        yield seen[0][0].at_s, seen[-1][1].at_s, job
