"""The command line of the fuzzing: readers, duration, and how inputs are kept."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.readers import BROKE, CORPUS, FOUND, READERS, kept
from scripts.tools.document import markdown

MOST_BYTES_BEYOND = 4096
"""How much longer than a reader's limit an input may become."""

FIRST_BYTES = 3000
"""Length of the start of a long text that becomes a separate seed: short inputs run a hundred times
as often."""

SLOW_S = 10
"""An input that takes a reader longer than this, in seconds, is a finding too."""

MOST_MEMORY_MB = 2048
MOST_KEPT, MOST_KEPT_BYTES = 40, 6000
"""Bounds on inputs kept per reader, since the suite replays all of them each time."""

ODD = ("=", "|", "\\x0a", "\\x1e", "\\x00", "(null)", "N/A", "NaN", "null", "1e999", "-1", "[1-9]")
"""Words for libFuzzer to insert anywhere, in its notation."""


@dataclass(frozen=True)
class Run:
    """The result for one reader; ``edges`` counts the control-flow edges covered."""

    name: str
    runs: int
    edges_before: int
    edges: int
    kept: tuple[str, ...]
    """New inputs of the corpus, by file name."""
    broken_by: tuple[str, ...]
    said: str
    """The end of libFuzzer's output, if it found something."""


@click.command()
@click.argument("seconds", type=click.IntRange(min=1), default=60)
@click.argument("readers", nargs=-1, type=click.Choice(tuple(READERS)))
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    help="Concurrent readers (default: the number of processors).",
)
def fuzz(seconds: int, readers: tuple[str, ...], jobs: int) -> None:
    """Fuzz each reader for this many SECONDS (default: 60); all readers, unless some are named.

    Inputs with new coverage are kept in tests/corpus/READER/found, and those that break a reader in
    tests/corpus/READER/broke. The test suite replays both from then on.
    """
    names = list(readers or READERS)
    click.echo(f"fuzz: {len(names)} readers, {seconds} s each, {jobs} at a time", err=True)
    click.echo(f"fuzz: {' | '.join(HEADER)}", err=True)
    with ThreadPoolExecutor(jobs) as pool:
        done = []
        for run in pool.map(lambda name: _fuzzed(name, seconds), names):
            click.echo(f"fuzz: {' | '.join(_row(run))}", err=True)
            done.append(run)
    click.echo(f"{sum(run.runs for run in done):,} runs, {seconds} s of each reader\n")
    click.echo(markdown(HEADER, [_row(run) for run in done]))
    for run in done:
        if run.broken_by:
            click.echo(f"\n{run.name}, broken by {', '.join(run.broken_by)}:\n{run.said}")
    sys.exit(1 if any(run.broken_by for run in done) else 0)


def _fuzzed(name: str, seconds: int) -> Run:
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        seeds, found, broken = (Path(folder) / part for part in ("seeds", "found", "broken"))
        for part in (seeds, found, broken):
            part.mkdir()
        for number, content in enumerate(_seeds(name)):
            (seeds / f"{number:03}").write_bytes(content)
        program = _program(Path(folder), name)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{word}"\n' for word in ODD))
        longest = max(path.stat().st_size for path in seeds.iterdir())
        log = _libfuzzer(
            program,
            *(f"-max_total_time={seconds}", f"-max_len={longest + MOST_BYTES_BEYOND}"),
            *(f"-timeout={SLOW_S}", f"-rss_limit_mb={MOST_MEMORY_MB}"),
            *(f"-artifact_prefix={broken}/", f"-dict={words}", "-print_final_stats=1"),
            *(str(found), str(seeds)),
        )
        if "stat::number_of_executed_units" not in log:
            raise click.ClickException(f"libFuzzer did not run {name}:\n{log[-3000:]}")
        new = [] if any(broken.iterdir()) else _worth_keeping(name, program, seeds, found)
        return Run(
            name,
            runs=_number(r"stat::number_of_executed_units: (\d+)", log),
            edges_before=_number(r"INITED cov: (\d+)", log),
            edges=_number(r"cov: (\d+)", log),
            kept=tuple(_keep(new, CORPUS / name / FOUND)),
            broken_by=tuple(_keep(sorted(broken.iterdir()), CORPUS / name / BROKE)),
            said=log[-3000:],
        )


def _seeds(name: str) -> Iterator[bytes]:
    for content in kept(name):
        yield content
        if len(content) > FIRST_BYTES and b"\n" in content[:FIRST_BYTES]:
            yield content[: content.rindex(b"\n", 0, FIRST_BYTES) + 1]


def _worth_keeping(name: str, program: Path, seeds: Path, found: Path) -> list[Path]:
    """Return the fewest and shortest inputs found that add coverage to the seeds."""
    merged = found.with_name("merged")
    shutil.copytree(seeds, merged)
    before = {path.name for path in merged.iterdir()}
    _libfuzzer(program, "-set_cover_merge=1", "-use_counters=0", str(merged), str(found))
    new = [path for path in merged.iterdir() if path.name not in before]
    short = [path for path in new if path.stat().st_size <= MOST_KEPT_BYTES]
    there = len(list((CORPUS / name / FOUND).glob("*")))
    return sorted(short, key=lambda path: path.stat().st_size)[: max(0, MOST_KEPT - there)]


def _keep(inputs: Sequence[Path], folder: Path) -> Iterator[str]:
    """Copy inputs into the folder; libFuzzer names them by content, so duplicates are kept once."""
    for path in inputs:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.name)
        yield path.name


def _program(folder: Path, name: str) -> Path:
    """Create a program that libFuzzer can start again as itself."""
    program = folder / "fuzz"
    python = f"exec {shlex.quote(sys.executable)} -m scripts.tools.fuzz.target"
    program.write_text(f'#!/bin/sh\n{python} "$0" {name} "$@"\n')
    program.chmod(0o755)
    return program


def _libfuzzer(program: Path, *arguments: str) -> str:
    """Return libFuzzer's output for a reader."""
    ended = subprocess.run(
        [str(program), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.stdout.decode(errors="replace")


def _number(pattern: str, log: str) -> int:
    """Return the last matching number in the log; 0 if there is none."""
    found = re.findall(pattern, log)
    return int(found[-1]) if found else 0


HEADER = ("reader", "runs", "edges before", "after", "inputs kept", "broken by")


def _row(run: Run) -> tuple[str, ...]:
    counts = (run.runs, run.edges_before, run.edges, len(run.kept), len(run.broken_by))
    return (run.name, *(f"{count:,}" for count in counts))
