"""The batches of a chaos test, its result and its failure."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NoReturn

import click

from scripts.tools.document import RELIABILITY, called, markdown, write_section

BATCHES = 5
"""Batches per process, whose memory grows because Hypothesis keeps data of every run."""


def record(title: str, text: str) -> None:
    """Print the result; with ``chaos --record``, replace the section of this title, too."""
    click.echo(text)
    if click.get_current_context().obj:
        write_section(title, called(), text, RELIABILITY)


def record_counts(
    title: str, done: Counter[str], counted: Mapping[str, str], began_s: float, sound: str
) -> None:
    """Record what has been counted, and what held meanwhile; ``counted`` are counts and words."""
    rows = [(words, f"{done[what]:,}") for what, words in counted.items() if done[what]]
    rows.append(("took", f"{(time.monotonic() - began_s) / 60.0:.0f} min"))
    record(title, f"{markdown(('what', 'count'), rows)}\n\n{sound}")


def fail(wrong: Sequence[str]) -> NoReturn:
    """Print the problems, one line each, and exit."""
    raise click.ClickException("\n  ".join([f"{len(wrong)} problems:", *wrong]))


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of some rounds; ``failure`` describes the first that failed."""

    done: Counter[str]
    failure: str


def in_batches(
    play: Callable[[int], Batch], seeds: Iterable[int], processes: int, until_s: float = math.inf
) -> Counter[str]:
    """Run a batch for each seed until the seeds or the time run out, or one fails."""
    done: Counter[str] = Counter()
    left = iter(seeds)
    with ProcessPoolExecutor(
        processes, get_context("spawn"), _log_errors_only, max_tasks_per_child=BATCHES
    ) as pool:
        running = {pool.submit(play, seed) for _, seed in zip(range(processes), left, strict=False)}
        while running:
            over, running = wait(running, return_when=FIRST_COMPLETED)
            for batch in (future.result() for future in over):
                done.update(batch.done)
                click.echo(f"{done['rounds']} rounds", err=True)
                if batch.failure:
                    pool.shutdown(cancel_futures=True)
                    raise click.ClickException(batch.failure)
                seed = next(left, None) if time.monotonic() < until_s else None
                if seed is not None:
                    running.add(pool.submit(play, seed))
    return done


def _log_errors_only() -> None:
    logging.getLogger("tiresias-slurm").setLevel(logging.ERROR)
