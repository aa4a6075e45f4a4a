"""The progress of a replay: one line on a terminal, or periodic lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 30.0


@contextmanager
def shown(what: str, jobs: int, foreseen_s: float) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many jobs were submitted and how many have ended."""
    console = Console(stderr=True, highlight=False)
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + foreseen_s))
    if not console.is_terminal:
        yield _lines(console, f"{what}, until about {until}", jobs)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("until about {task.fields[until]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=jobs, until=until)
        yield lambda _submitted, ended: bar.update(task, completed=ended)


def _lines(console: Console, what: str, jobs: int) -> Callable[[int, int], None]:
    began_s = last_s = time.monotonic()

    def show(submitted: int, ended: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= LINE_EVERY_S or ended == jobs:
            last_s = now_s
            told = f"{now_s - began_s:4.0f} s, {submitted} submitted, {ended} of {jobs} ended"
            console.print(f"{what}: {told}")

    return show
