"""The demo's output: a live line on a terminal, periodic lines elsewhere, and a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scripts.tools.demo.jobs import Counts
from scripts.tools.demo.measure import Result
from scripts.tools.demo.mix import MOST_GPUS

LINE_EVERY_S = 10.0
BAR_CELLS = 24
WIDTH_WITHOUT_TERMINAL = 100

STOCK = "stock Slurm"
TIRESIAS = "Tiresias"


def screen() -> Console:
    """Return a console on stderr, since stdout is for the result."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


@contextmanager
def progress(console: Console, name: str, jobs: int) -> Iterator[Callable[[Counts], None]]:
    """Yield a function that shows the progress of the run."""
    began_s = time.monotonic()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield lambda counts: live.update(bars(name, counts, jobs, time.monotonic() - began_s))
    else:
        yield Lines(console, name, jobs, began_s)


class Lines:
    """Prints periodic plain lines, for a log."""

    def __init__(self, console: Console, name: str, jobs: int, began_s: float) -> None:
        self.console, self.name, self.jobs, self.began_s = console, name, jobs, began_s
        self.last_s = began_s

    def __call__(self, counts: Counts) -> None:
        now_s = time.monotonic()
        done = counts.finished == self.jobs
        if now_s - self.last_s >= LINE_EVERY_S or done:
            self.last_s = now_s
            words = in_words(counts, self.jobs)
            self.console.print(f"{self.name:11} {now_s - self.began_s:3.0f} s  {words}")


def in_words(counts: Counts, jobs: int) -> str:
    return (
        f"{counts.finished:2}/{jobs} done, {counts.running} running on "
        f"{counts.busy_gpus}/{MOST_GPUS} GPUs, {counts.waiting} waiting, "
        f"{counts.preemptions} preempted"
    )


def bars(name: str, counts: Counts, jobs: int, elapsed_s: float) -> Text:
    """Return two lines that fit into 80 columns."""
    text = Text(f"{name:11} {elapsed_s:4.0f} s  ")
    done = round(BAR_CELLS * counts.finished / jobs)
    begun = round(BAR_CELLS * (counts.finished + counts.running) / jobs) - done
    text.append("━" * done, "green").append("━" * begun, "yellow")
    text.append("━" * (BAR_CELLS - done - begun), "bright_black")
    text.append(f" {counts.finished}/{jobs} done\n{'':20}")
    text.append("■" * counts.busy_gpus, "cyan")
    text.append("□" * (MOST_GPUS - counts.busy_gpus), "bright_black")
    text.append(f" GPUs{'':4}{counts.waiting} waiting, {counts.preemptions} preempted")
    return text


def result_table(stock: Result, tiresias: Result, kinds: Mapping[str, int]) -> Table:
    table = Table(title="One second of the demo stands for one minute", title_style="italic")
    table.add_column("")
    for name in (STOCK, TIRESIAS, "stock / Tiresias"):
        table.add_column(name, justify="right")
    add_times(table, "average JCT", stock.average_jct_s, tiresias.average_jct_s)
    for kind, average_s in stock.average_jct_s_by_kind.items():
        name = f"  {kind} ({kinds[kind]} jobs)"
        add_times(table, name, average_s, tiresias.average_jct_s_by_kind[kind])
    add_times(table, "median JCT", stock.median_jct_s, tiresias.median_jct_s)
    add_times(table, "95th percentile JCT", stock.p95_jct_s, tiresias.p95_jct_s)
    add_times(table, "makespan", stock.makespan_s, tiresias.makespan_s)
    table.add_row("preemptions", str(stock.preemptions), str(tiresias.preemptions), "")
    table.add_row("GPU use", f"{stock.gpu_use:.0%}", f"{tiresias.gpu_use:.0%}", "")
    table.add_row("steps done again", str(stock.steps_redone), str(tiresias.steps_redone), "")
    return table


def add_times(table: Table, name: str, stock_s: float, tiresias_s: float) -> None:
    ratio = f"{stock_s / tiresias_s:.2f}" if tiresias_s else ""
    table.add_row(name, f"{stock_s:.1f} s", f"{tiresias_s:.1f} s", ratio)
