"""Everything that reads what Slurm or somebody else has written, fed with what is nearly right.

Each reader begins with texts that it takes (``corpus/``, and what real clusters answered), of which
parts are cut out, doubled or replaced. It may refuse the result, by an error of this program, and
nothing worse. What once made a reader fail is kept in its folder.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias.config import load
from slurm_tiresias.controller import published
from slurm_tiresias.controller.control import command_of
from slurm_tiresias.controller.hints import first_look_until_s, hints_of
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import Amount, Node
from slurm_tiresias.profiler import exchange, gpu_runs, traffic
from slurm_tiresias.profiler.incarnation import parsed_file_name
from slurm_tiresias.simulator.cluster_file import read_cluster
from slurm_tiresias.slurm import (
    job_details,
    job_rows,
    parse_accounting,
    parse_config,
    parse_nodes,
    release,
    write_lines,
)
from slurm_tiresias.slurm.job_memory import JobMemory
from slurm_tiresias.slurm.protocol import Requeue
from tests.profiler.traffic_files import traffic_file

CORPUS = Path(__file__).parent / "corpus"
RECORDED = Path(__file__).parent / "slurm" / "recorded" / "22.05"
SEPARATOR = "\x1erecorded\x1e"
RELEASE = release.of((22, 5, 0))

Read = Callable[[bytes], object]

NODES = [Node("n1", Amount({"": 4}, 16, 8000))]


def _text(content: bytes) -> str:
    """As the program decodes what Slurm's commands print."""
    return content.decode("utf-8", errors="replace")


def _file(read: Callable[[Path], object], name: str = "file") -> Read:
    def read_it(content: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            return read(path)

    return read_it


def _jobs(content: bytes) -> object:
    """All that is made of squeue's answer and scontrol's, the one spoilt and the other not."""
    rows = tuple(job_rows.rows(_text(content), SEPARATOR, RELEASE))
    memory = JobMemory()
    memory.learn(rows, job_details.records_of_all((RECORDED / "jobs.txt").read_text("utf-8")))
    return memory.jobs(rows)


def _details(content: bytes) -> object:
    records = job_details.records_of_all(_text(content))
    rows = job_rows.rows((RECORDED / "squeue.txt").read_bytes().decode(), SEPARATOR, RELEASE)
    return [job_details.details(records[row.raw_id], row) for row in rows if row.raw_id in records]


def _hint(content: bytes) -> object:
    return hints_of(_text(content), ""), first_look_until_s(_text(content))


def _nodes(content: bytes) -> object:
    partitions = parse_nodes.partitions((RECORDED / "partitions.txt").read_text())
    return parse_nodes.nodes(_text(content), partitions, {})


@dataclass(frozen=True)
class Reader:
    """What reads, and texts to begin with besides those of its folder."""

    read: Read
    seeds: tuple[bytes, ...] = ()


def recorded(name: str) -> tuple[bytes, ...]:
    """What each release answered."""
    return tuple((folder / name).read_bytes() for folder in sorted(RECORDED.parent.iterdir()))


READERS: Mapping[str, Reader] = {
    "squeue": Reader(_jobs, recorded("squeue.txt")),
    "scontrol-jobs": Reader(_details, recorded("jobs.txt")),
    "scontrol-nodes": Reader(_nodes, recorded("nodes.txt")),
    "scontrol-partitions": Reader(
        lambda content: parse_nodes.partitions(_text(content)), recorded("partitions.txt")
    ),
    "scontrol-topology": Reader(
        lambda content: parse_nodes.leaf_switches(_text(content)), recorded("topology.txt")
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
        lambda content: tuple(parse_accounting.incarnations(_text(content), {"1", "2", "3"})),
        recorded("sacct.txt"),
    ),
    "complaints": Reader(
        lambda content: write_lines.failures([Requeue(key) for key in "123"], _text(content), "M")
    ),
    "state": Reader(_file(lambda path: published.read(path.parent), published.FILE_NAME)),
    "config": Reader(_file(load)),
    "cluster": Reader(_file(read_cluster)),
    "profiles": Reader(exchange.parsed),
    "gpus": Reader(gpu_runs.parse),
    "traffic": Reader(traffic.parse, (traffic_file({4096: 3, 5000: 1}, {1 << 20: 7}),)),
    "file-name": Reader(lambda content: parsed_file_name(_text(content)), (b"7.0.n1.traffic",)),
    "hint": Reader(_hint),
    "control": Reader(command_of),
}

ODD = rb"""= | [ { " (null) -1 N/A NaN null 1e999 [1-99999999] 999999999999999999999999999999"""
pieces = st.binary(max_size=12) | st.sampled_from(
    (*ODD.split(), b" JobId=1 ", b"\n", b"\x1e", b"\x00", b"\xff", b"\xc2\xb2", b"\xed\xa0\x80")
)
"""What is put in the place of what was there."""

changes = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 3, 40]), pieces), min_size=1, max_size=6
)
"""Where, in parts of the whole; how many bytes are taken out; what is put there."""


def kept(name: str) -> list[bytes]:
    folder = CORPUS / name
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [*READERS[name].seeds, *(path.read_bytes() for path in found)]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_what_is_right_and_stands_what_once_broke_it(name: str) -> None:
    contents = kept(name)
    assert contents
    READERS[name].read(contents[0])
    for content in contents:
        _refused_or_read(name, content)


@pytest.mark.parametrize("name", READERS)
def test_what_is_nearly_right_is_read_or_refused_and_nothing_worse(name: str) -> None:
    contents = kept(name)

    @settings(max_examples=int(os.environ.get("TIRESIAS_FUZZ_EXAMPLES", "40")))
    @given(st.sampled_from(contents), changes)
    def run(content: bytes, made: list[tuple[float, int, bytes]]) -> None:
        for where, taken, put in made:
            at = int(where * len(content))
            content = content[:at] + put + content[at + taken :]
        _refused_or_read(name, content)

    run()


def _refused_or_read(name: str, content: bytes) -> None:
    try:
        READERS[name].read(content)
    except TiresiasError as error:
        assert str(error)
