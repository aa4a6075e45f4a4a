"""The ``when`` command."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from slurm_tiresias.cli.options import checked_job_id, json_option, takes_config
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.errors import UsageError
from slurm_tiresias.explanation.start import sentences, sooner
from slurm_tiresias.settings import Config
from slurm_tiresias.status.when import SCHEMA, Variant, query_when
from slurm_tiresias.text import printable, shorten

HELP = "Give a job id, or sbatch's options after --"
NOT_YET = "When it starts is not known yet. Ask again in a minute."
MOST_SCRIPT_BYTES = 1 << 20
MOST_NAME = 100
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)


@click.command()
@click.argument("about", nargs=-1, type=click.UNPROCESSED, metavar="[JOBID | -- OPTIONS]")
@json_option
@takes_config
def when(config: Config, about: tuple[str, ...], as_json: bool) -> None:
    """Say when a job will start, and what would make that sooner.

    Names a waiting job by its JOBID, or one that is not submitted by sbatch's options after `--`,
    and perhaps its script: `when -- -G 8 -t 240 train.sh`. Of these options, the number and type of
    GPUs, nodes, partition, time limit and name count. Exit code 1: no such job. Exit code 3: no
    controller runs.
    """
    state_dir = Path(config.controller.state_dir)
    if len(about) == 1 and about[0].isascii() and about[0][:1].isdigit():
        asked: str | dict[str, Any] = checked_job_id(about[0])
    elif about:
        asked = asked_for(about[1:] if about[0] == "sbatch" else about)
    else:
        raise UsageError("No job is named", HELP)
    variants = query_when(state_dir, asked)
    data = {"schema": SCHEMA, "variants": [asdict(variant) for variant in variants]}
    show_or_json(as_json, lambda: data, lambda screen: screen_lines(variants, screen))


def screen_lines(variants: Sequence[Variant], screen: Screen) -> Iterator[str]:
    """Yield the answer for people."""
    now_s = time.time()
    if not variants:
        yield from screen.prose(NOT_YET, indent="")
        return
    yield from screen.prose(" ".join(sentences(variants[0].start, now_s)), indent="")
    found = list(sooner(variants, now_s))
    if found:
        yield ""
        yield "What would make it sooner"
        for each in found:
            yield from screen.item(each)


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"sbatch's options: {printable(message)}", "See: man sbatch")


def _options() -> _Options:
    options = _Options(add_help=False, allow_abbrev=False)
    options.add_argument("-G", "--gpus", default="")
    options.add_argument("--gpus-per-node", "--gres", dest="per_node", default="")
    options.add_argument("-N", "--nodes", default="")
    options.add_argument("-p", "--partition", default="")
    options.add_argument("-t", "--time", default="")
    options.add_argument("-J", "--job-name", dest="name", default="")
    return options


def _words(about: tuple[str, ...]) -> list[str]:
    """Return the options, those of a script first: later ones win."""
    # What follows the script are its own arguments, which may be files too.
    scripts = ((index, text) for index, word in enumerate(about) if (text := _script(Path(word))))
    first = next(scripts, None)
    if first is None:
        if about and not about[0].startswith("-"):
            said = shorten(printable(" ".join(about)), 40)
            raise UsageError(f"{said!r} is neither one job id nor a script", HELP)
        return list(about)
    index, text = first
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    try:
        found = [word for line in lines for word in shlex.split(line[7:], comments=True)]
    except ValueError as error:
        raise UsageError(f"An #SBATCH line cannot be read: {error}", "See: man sbatch") from None
    return [*found, "--job-name", Path(about[index]).name, *about[:index]]


def _script(path: Path) -> str:
    """Return the text of a batch script; "" if the file is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_SCRIPT_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""
    return text if text.startswith("#!") else ""


def asked_for(about: tuple[str, ...]) -> dict[str, Any]:
    """Return what a job with these options, or those of this script, asks for."""
    options, _ = _options().parse_known_args(_words(about))
    nodes = _number(options.nodes.partition("-")[0], "-N") if options.nodes else 0
    gpu_type, gpus = _gpus(options.gpus or options.per_node or "1")
    if options.gpus:
        nodes = 0
    elif options.per_node:
        nodes = max(1, nodes)
    return {
        "name": shorten(options.name, MOST_NAME),
        "gpus": gpus,
        "gpu_type": gpu_type,
        "nodes": nodes,
        "partition": options.partition.partition(",")[0],
        "limit_s": _seconds(options.time) if options.time else 0.0,
    }


def _number(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise UsageError(f"{option} {printable(text)[:40]!r} is not a number", "See: man sbatch")
    return int(text)


def _gpus(text: str) -> tuple[str, int]:
    """Parse ``8``, ``a100:8``, or of a generic resource ``gpu``, ``gpu:8``, ``gpu:a100:8``."""
    *kind, number = text.split(":")
    if "gpu" in (number, *kind[:1]):
        kind = kind[1:] if kind else []
        if not number.isdigit():
            kind, number = [number] if number != "gpu" else [], "1"
    return kind[0] if kind else "", _number(number, "--gpus")


def _seconds(text: str) -> float:
    """Parse a time limit as sbatch does: ``90`` are minutes, ``1-12`` are a day and 12 hours."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"-t {printable(text)[:40]!r} is no time limit", "Write it as sbatch does")
    days, *parts = (None if part is None else int(part) for part in found.groups())
    first, second, third = parts
    if days is not None:
        return 86400.0 * days + 3600 * (first or 0) + 60 * (second or 0) + (third or 0)
    if third is not None:
        return 3600.0 * (first or 0) + 60 * (second or 0) + third
    return 60.0 * (first or 0) + (second or 0)
