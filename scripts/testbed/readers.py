"""All parsers of text from Slurm and users, by name, with valid inputs, for fuzzing.

A parser may refuse its input with a ``TiresiasError``, and must not fail otherwise. Text that users
write into job fields must not be refused either, because that would end the cycle for all.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import ROOT
from scripts.testbed import user_text
from scripts.testbed.row_memory import RowMemory
from scripts.testbed.traffic_files import traffic_file
from slurm_tiresias.config import load
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import first_look_until_s, hints_of
from slurm_tiresias.model import Amount, Node
from slurm_tiresias.profiler import exchange, gpu_runs, traffic
from slurm_tiresias.profiler.files import pickles
from slurm_tiresias.profiler.files.read import read as read_model
from slurm_tiresias.profiler.files.tensor import Unreadable
from slurm_tiresias.profiler.run_id import parsed_file_name
from slurm_tiresias.simulator.cluster_file import read_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.slurm import (
    job_details,
    job_rows,
    parse_accounting,
    parse_config,
    parse_jobs,
    parse_nodes,
    release,
    write_lines,
)
from slurm_tiresias.slurm.protocol import Requeue
from slurm_tiresias.status import published

CORPUS = ROOT / "tests" / "corpus"
RECORDED = ROOT / "tests" / "slurm" / "recorded" / "22.05"
TRACES = ROOT / "tests" / "simulator" / "recorded"
MODELS = ROOT / "tests" / "profiler" / "recorded"
FOUND, BROKE = "found", "broke"
SEPARATOR = "\x1erecorded\x1e"
RELEASE = release.of((22, 5, 0))

Read = Callable[[bytes], object]

NODES = [Node("n1", Amount({"": 4}, 16, 8000))]


def _text(content: bytes) -> str:
    """Decode bytes as the program decodes the output of Slurm's commands."""
    return content.decode("utf-8", errors="replace")


def _file(read: Callable[[Path], object], name: str = "file") -> Read:
    def read_it(content: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            return read(path)

    return read_it


def _jobs(content: bytes) -> object:
    """Parse a fuzzed answer of squeue together with an intact one of scontrol."""
    rows = tuple(job_rows.rows(_text(content), SEPARATOR, RELEASE))
    memory = RowMemory()
    memory.learn(rows, job_details.records_of_all((RECORDED / "jobs.txt").read_text("utf-8")))
    return memory.jobs(rows)


def _details(content: bytes) -> object:
    records = job_details.records_of_all(_text(content))
    rows = job_rows.rows((RECORDED / "squeue.txt").read_bytes().decode(), SEPARATOR, RELEASE)
    jobs = map(parse_jobs.fields, rows)
    return [job_details.details(records[job.raw_id], job) for job in jobs if job.raw_id in records]


def _hint(content: bytes) -> object:
    return hints_of(_text(content), ""), first_look_until_s(_text(content))


def _nodes(content: bytes) -> object:
    partitions = parse_nodes.partitions((RECORDED / "partitions.txt").read_text())
    return parse_nodes.nodes(_text(content), partitions, {})


def _pickle(content: bytes) -> object:
    try:
        return list(pickles.tensors_in(content))
    except Unreadable as error:
        raise TiresiasError(str(error), "as the reader of whole checkpoints says") from error


def _pickle_in(checkpoint: Path) -> bytes:
    with zipfile.ZipFile(checkpoint) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        return archive.read(name)


@dataclass(frozen=True)
class Reader:
    """A parser, and its seed inputs in addition to those in its corpus folder."""

    read: Read
    seeds: tuple[bytes, ...] = ()
    may_refuse: bool = True


def recorded(name: str) -> tuple[bytes, ...]:
    """What each release answered."""
    return tuple((folder / name).read_bytes() for folder in sorted(RECORDED.parent.iterdir()))


def all_in(folder: Path, names: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(folder.glob(names)))


READERS: Mapping[str, Reader] = {
    "squeue": Reader(_jobs, recorded("squeue.txt")),
    "user-text": Reader(user_text.read, user_text.SEEDS, may_refuse=False),
    "scontrol-jobs": Reader(_details, recorded("jobs.txt")),
    "scontrol-nodes": Reader(_nodes, recorded("nodes.txt")),
    "scontrol-partitions": Reader(
        lambda content: parse_nodes.partitions(_text(content)), recorded("partitions.txt")
    ),
    "scontrol-topology": Reader(
        lambda content: parse_nodes.locations(_text(content)), recorded("topology.txt")
    ),
    "reservations": Reader(lambda content: parse_nodes.reservations(_text(content), NODES)),
    "scontrol-config": Reader(
        lambda content: (
            parse_config.cluster(_text(content), 0.0),
            parse_config.slurm_user_id(_text(content)),
        ),
        recorded("config.txt"),
    ),
    "sacct": Reader(
        lambda content: tuple(parse_accounting.runs(_text(content), {"1", "2", "3"})),
        recorded("sacct.txt"),
    ),
    "complaints": Reader(
        lambda content: write_lines.answers([Requeue(key) for key in "123"], _text(content), "M")
    ),
    "state": Reader(_file(lambda path: published.read(path.parent), published.FILE_NAME)),
    "config": Reader(_file(load)),
    "cluster": Reader(_file(read_cluster)),
    "profiles": Reader(exchange.parsed),
    "gpus": Reader(gpu_runs.parse),
    "traffic": Reader(traffic.parse, (traffic_file({4096: 3, 5000: 1}, {1 << 20: 7}),)),
    "file-name": Reader(lambda content: parsed_file_name(_text(content)), (b"7.0.n1.traffic",)),
    "hint": Reader(_hint),
    "trace": Reader(_file(load_trace), all_in(TRACES, "*.txt")),
    "model": Reader(_file(read_model), all_in(MODELS, "m*")),
    "checkpoint": Reader(_pickle, tuple(map(_pickle_in, sorted(MODELS.glob("[cms]*.pt"))))),
}


def kept(name: str) -> list[bytes]:
    """Return a parser's inputs: valid ones, then those that reach rare code, then past crashes."""
    folder = CORPUS / name
    found = [
        path
        for part in (folder, folder / FOUND, folder / BROKE)
        if part.is_dir()
        for path in sorted(part.iterdir())
        if path.is_file()
    ]
    return [*READERS[name].seeds, *(path.read_bytes() for path in found)]


def read_or_refused(name: str, content: bytes) -> None:
    try:
        READERS[name].read(content)
    except TiresiasError as error:
        if not READERS[name].may_refuse:
            raise
        assert str(error)
