"""The demo's output: a live picture or periodic lines, a table, and the schedules as bars."""

from __future__ import annotations

import io
import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.terminal_theme import MONOKAI
from rich.text import Text

from scripts.tools.demo.jobs import OTHER_USER, Run
from scripts.tools.demo.measure import Result
from scripts.tools.demo.mix import GPUS_PER_NODE, MOST_GPUS, Job

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


def console(**options: Any) -> Console:
    """Return a console as wide as promised where it is no terminal."""
    made = Console(highlight=False, **options)
    if not made.is_terminal:
        made.width = WIDTH
    return made


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


def show(console: Console, runs: Sequence[Run], table: Table) -> None:
    """Print each run's GPUs over time, on one scale, and the results."""
    colours = console.color_system is not None
    slice_s = max(each.samples[-1].at_s for each in runs) / COLUMNS
    for each in runs:
        console.print(f"\n{each.name}, {each.samples[-1].at_s:.0f} s", style="bold")
        console.print(schedule(each, colours, slice_s))
    text = Text("    ")
    for kind, shade in COLOURS.items():
        text.append("██" if colours else LETTERS[kind], shade).append(f" {kind}  ", "default")
    console.print(text.append("below: queue\n"))
    console.print(table)


def save(path: Path, runs: Sequence[Run], what: str, table: Table) -> None:
    """Write what is shown on a terminal with colours as a page."""
    page = console(file=io.StringIO(), record=True, color_system="truecolor")
    page.print(what, markup=False)
    show(page, runs, table)
    page.save_html(str(path), theme=MONOKAI)


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
                holder = sample.holders[gpu]
                text.append(LETTERS[holder.kind] if holder else ".")
        text.append("\n")
    most = max(sample.waiting for sample in shown) or 1
    queue = "".join(BLOCKS[-(-8 * sample.waiting // most)] for sample in shown)
    return text.append(f"    {queue}")


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
