"""The cost of a cycle in which all running jobs report progress."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import click

from scripts.testbed.job_views import status
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import Cycles, collect_seldom
from slurm_tiresias.controller.publish import nothing_yet, report
from slurm_tiresias.job.record import Record, encode
from slurm_tiresias.model import Amount, JobState, JobStatus, Node, ProgressSource, Request
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.progress.folder import RESTS, ProgressFolder
from slurm_tiresias.progress.live_file import NodeReport, text_of
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.slurm.protocol import Cluster, Observation, Partition, Slurm
from slurm_tiresias.status import published
from slurm_tiresias.status.shadow_comparison import SHADOW
from slurm_tiresias.store.ledger import Ledger

JOBS, NODES = 10_000, 1_000
GPUS = JOBS // NODES
INTERVAL_S = 10.0
ROUNDS, ROUNDS_BESIDE = 15, 5
START_S = 1_700_000_000.0
ONE_GPU = Request(Amount({"": 1}, 1), 1)
CLUSTER = Cluster("bench", (22, 5, 8), "priority/multifactor", False, 30.0, 120.0, 0.0)
"""Jobs with one GPU each, all of which report between two cycles."""


class _Still:
    """A Slurm in which all jobs run and nothing else happens."""

    def __init__(self) -> None:
        total = Amount({"": GPUS}, 64, 512_000)
        nodes = [f"n{number}" for number in range(NODES)]
        self._nodes = tuple(Node(name, total, partitions=frozenset({"gpu"})) for name in nodes)
        self._partitions = (Partition("gpu", frozenset(nodes), up=True),)
        self._jobs = tuple(self._running(number) for number in range(1, JOBS + 1))
        self.now_s = START_S + 60.0

    @staticmethod
    def node_of(number: int) -> str:
        return f"n{number % NODES}"

    def _running(self, number: int) -> JobStatus:
        return status(
            str(number),
            ONE_GPU,
            JobState.RUNNING,
            user=f"user{number % 100}",
            submit_s=START_S,
            start_s=START_S,
            allocation={self.node_of(number): Amount({"": 1}, 1)},
        )

    def observe(self) -> Observation:
        elapsed_s = self.now_s - START_S
        jobs = tuple(replace(job, elapsed_s=elapsed_s) for job in self._jobs)
        return Observation(
            self.now_s, jobs, self._nodes, self._partitions, steady_s=self.now_s - START_S
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_arguments, **_options: ()


class _Site:
    """A controller that cycles over this Slurm, and the folder to which the nodes report."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.config = parse({"profiler": {"collect_dir": str(folder)}})
        self._live = folder / FOLDER
        self._live.mkdir()
        self.slurm = _Still()
        self.reader = ProgressFolder(
            *(str(folder), lambda: self.slurm.now_s - START_S, lambda: self.slurm.now_s),
            rest=lambda s: time.sleep(s) if self.rests else None,
        )
        profiler = Profiler(ProfileStore(None), self.config)
        self.cycles = Cycles(
            *(cast(Slurm, self.slurm), CLUSTER, ledger, self.config, profiler),
            progress=self.reader,
        )
        self._state_dir = folder
        self.rests = False
        # In the benchmark, ``look`` is called explicitly.
        self.reader.background.step_unless_started = lambda: None  # type: ignore[method-assign]

    def all_report(self) -> None:
        """Report ten more steps of every job."""
        now_s = self.slurm.now_s
        by_node: dict[str, dict[RunId, NodeReport]] = {}
        for number in range(1, JOBS + 1):
            record = Record(
                int(now_s - START_S), 100_000, now_s - number % 7, 0, START_S, 40, START_S
            )
            node = self.slurm.node_of(number)
            told = NodeReport(ProgressSource.REPORTS, encode(record).rstrip())
            by_node.setdefault(node, {})[RunId(number, 0, node)] = told
        for node, runs in by_node.items():
            draft = self._live / f".{node}.new"
            draft.write_bytes(text_of(runs))
            draft.replace(self._live / f"{node}.live")

    def cycle_s(self, clock: Callable[[], float] = time.thread_time) -> float:
        """Run and publish a cycle; return its duration by the wall clock."""
        self.slurm.now_s += INTERVAL_S
        began_s = clock()
        done = self.cycles.run(SHADOW)
        before = nothing_yet(CLUSTER, self.config, SHADOW)
        shown = (done.snapshot, done.plan, self.cycles.job_store)
        state = report(self.config, before, *shown, done.policy, ())
        published.write(state, self._state_dir)
        return clock() - began_s

    def read_s(self) -> float:
        """Read all reports at once; return the duration."""
        began_s = time.thread_time()
        self.reader.look()
        return time.thread_time() - began_s

    def cycles_beside_s(self) -> list[float]:
        """Return the durations of cycles while another thread reads the reports, with pauses."""
        self.rests = True
        reader = threading.Thread(target=self.reader.look)
        reader.start()
        took_s = [self.cycle_s(time.perf_counter) for _ in range(3)]
        assert reader.is_alive()
        self.rests = False
        reader.join()
        return took_s


@click.command("progress")
def progress() -> None:
    """The cost of a cycle in which all jobs report progress."""
    collect_seldom()  # as the controller does
    with _site() as silent, _site() as telling:
        for site in (silent, telling) * 3:
            site.cycle_s()
        silent_s: list[float] = []
        told_s: list[float] = []
        reading_s, beside = [], []
        for number in range(ROUNDS):
            telling.all_report()
            reading_s.append(telling.read_s())
            pair = (silent, silent_s), (telling, told_s)
            # Alternate, so that changes in processor speed affect both equally.
            for site, took_s in pair if number % 2 else reversed(pair):
                gc.collect()
                took_s.append(site.cycle_s())
        for _ in range(ROUNDS_BESIDE):
            alone_s = [telling.cycle_s(time.perf_counter) for _ in range(3)]
            telling.all_report()
            beside.append(median(telling.cycles_beside_s()) / median(alone_s))
    more_s = [told - without for told, without in zip(told_s, silent_s, strict=True)]
    _write(silent_s, told_s, more_s, median(reading_s), median(beside))


@contextmanager
def _site() -> Iterator[_Site]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with closing(Ledger(place / "ledger.sqlite")) as ledger:
            yield _Site(place, ledger)


def _write(
    silent_s: Sequence[float],
    told_s: Sequence[float],
    more_s: Sequence[float],
    reading_s: float,
    beside: float,
) -> None:
    rows = [
        ["no job reports", _ms(median(silent_s)), ""],
        ["all have reported since the last cycle", _ms(median(told_s)), _ms(median(more_s))],
    ]
    header = (f"{JOBS:,} running jobs on {NODES:,} nodes", "a cycle, ms", "more, ms")
    text = (
        "A cycle from what Slurm shows to what is published, without the time that Slurm's "
        f"commands take: CPU time, medians of {ROUNDS} pairs. A thread beside it reads the "
        f"reports: all that are new in {_ms(reading_s)} ms of CPU time, with rests in between that "
        f"are {RESTS:g} times as long. While it reads, a cycle takes {beside:.2f} times as long by "
        "the clock. slurmctld is asked for nothing more."
    )
    record("Progress of all jobs", markdown(header, rows), text)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"
