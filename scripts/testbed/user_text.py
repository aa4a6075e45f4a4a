"""A recorded cluster with several users' jobs, one of which has arbitrary text in all its fields.

The command driver reads it like the output of real commands: only the function that runs them is
replaced.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast
from unittest.mock import patch

from scripts import ROOT
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import SHADOW, Cycles
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.slurm import job_details, job_rows, parse_config, process, release
from slurm_tiresias.slurm.commands import MOST_JOBS_ONE_BY_ONE, CommandSlurm
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.process import Answer
from slurm_tiresias.slurm.protocol import Observation, Slurm
from slurm_tiresias.store.ledger import Ledger

RECORDED = ROOT / "tests" / "slurm" / "recorded" / "22.05"
SEPARATOR = "\x1erecorded\x1e"

KEYS = ("46", "63", "9", "7", "27", "28", "29", "54_0", "54_1", "54_2", "61", "49")
"""Ended, completing, waiting and running jobs; with bounds, named nodes and features."""

WRITERS = ("9", "49")
"""A waiting job and a running one, either of which may be the hostile job."""

FIELDS: Mapping[str, str] = {
    "name": "JobName",
    "wckey": "WCKey",
    "comment": "Comment",
    "admin_comment": "AdminComment",
    "features": "Features",
    "required_nodes": "ReqNodeList",
    "excluded_nodes": "ExcNodeList",
    "time_limit": "TimeLimit",
    "tres_per_job": "TresPerJob",
    "tres_per_node": "TresPerNode",
    "tres_per_socket": "TresPerSocket",
    "tres_per_task": "TresPerTask",
    "cpus_per_tres": "CpusPerTres",
    "memory_per_tres": "MemPerTres",
    "dependency": "Dependency",
    "licenses": "Licenses",
    "network": "Network",
    "burst_buffer": "",
    "deadline": "Deadline",
    "disk": "MinTmpDiskNode",
    "switches": "",
    "segment": "",
    "threads_per_core": "",
    "command": "Command",
    "work_dir": "WorkDir",
    "std_out": "StdOut",
    "nodes": "NumNodes",
    "most_nodes": "",
    "tasks": "NumTasks",
    "cpus": "NumCPUs",
    "cpus_per_task": "CPUs/Task",
    "memory": "MinMemoryCPU",
    "tres": "TRES",
}
"""Fields that a user writes or influences (``--mem=99999999999999999T`` shows as ``mem=8?``): the
``JobRow`` field, if squeue shows it, and the word in ``scontrol show job``, "" if there is none."""

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where temporary ledgers are created, since they need not last."""

END = "\0"
"""Users' text cannot contain it, because it ends a text in Slurm."""

MOST_CPU_S = 2.0
"""Normally a cycle takes some hundredths of a second, under the fuzzer some tenths."""

SEEDS = (
    b"tres_per_node=gres:gpu:2\0features=fast&ib\0required_nodes=n[1-2]\0name=train",
    b"job=49\0comment=tiresias:model=vgg16\0time_limit=1-00:00:00\0tres_per_job=gres:gpu:a100:2",
    b"tres_per_task=gres:gpu:1\0cpus_per_tres=gres:gpu:2\0memory_per_tres=gres:gpu:200M",
    b"memory=500M\0tres=cpu=2,mem=500M,node=1,billing=1,gres/gpu=2\0tasks=2\0cpus=2\0nodes=1",
)

CONFIG = parse({})


def written(content: bytes) -> tuple[str, dict[str, str]]:
    """Parse NUL-separated ``field=text`` into the hostile job's key and its texts."""
    texts: dict[str, str] = {}
    key = WRITERS[0]
    for part in content.decode("utf-8", errors="replace").split(END):
        field, _, text = part.partition("=")
        if field == "job" and text in WRITERS:
            key = text
        elif field in FIELDS:
            texts[field] = text
    return key, texts


@dataclass(frozen=True)
class Shown:
    """The jobs as squeue's rows and as scontrol's records by raw job id."""

    rows: tuple[JobRow, ...]
    records: Mapping[int, str]

    def with_text(self, key: str, texts: Mapping[str, str]) -> Shown:
        (row,) = (row for row in self.rows if row.key == key)
        raw_id = int(row.raw_id)
        record = self.records[raw_id]
        for field, text in texts.items():
            if FIELDS[field]:
                record = _replaced(record, row.name, FIELDS[field], text)
        known = {field: text for field, text in texts.items() if field in JobRow._fields}
        spoilt = row._replace(**known)
        rows = tuple(spoilt if each is row else each for each in self.rows)
        return Shown(rows, {**self.records, raw_id: record})


def _replaced(record: str, name: str, word: str, text: str) -> str:
    """Return the record with a text inserted verbatim, as Slurm prints it."""
    if word == "JobName":
        return record.replace(f"JobName={name} ", f"JobName={text} ", 1)
    place = re.search(rf" {word}=\S*", record)
    if place:
        return f"{record[: place.start()]} {word}={text}{record[place.end() :]}"
    if word == "WCKey":
        return record.replace(" JobState=", f" WCKey={text} JobState=", 1)
    return f"{record.rstrip()} {word}={text} \n"


@cache
def honest() -> Shown:
    recorded = release.of((22, 5, 0))
    squeue = (RECORDED / "squeue.txt").read_bytes().decode()
    by_key = {row.key: row for row in job_rows.rows(squeue, SEPARATOR, recorded)}
    rows = tuple(by_key[key] for key in KEYS)
    records = job_details.records_of_all((RECORDED / "jobs.txt").read_bytes().decode())
    return Shown(rows, {raw_id: records[raw_id] for raw_id in (int(row.raw_id) for row in rows)})


@dataclass
class Commands:
    """Replaces ``process.run``: answers squeue and scontrol."""

    shown: Shown
    asked_for: int = 0
    """The number of jobs that scontrol was asked about one by one."""

    def run(
        self,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
        **_: object,
    ) -> Answer:
        command = arguments[0]
        if command == "squeue" and "--version" in arguments:
            return Answer("slurm 22.05.8\n", "", 0)
        if command == "squeue":
            return Answer(self._squeue(environment["SQUEUE_FORMAT2"]), "", 0)
        if command == "scontrol" and arguments[1:] == ["ping"]:
            return Answer("Slurmctld(primary) at localhost is UP\n", "", 0)
        assert command == "scontrol", f"{command} is not to be asked anything"
        answers = [self._scontrol(question) for question in stdin.splitlines()]
        complaints = "".join(complaint for _, complaint in answers)
        return Answer("".join(answer for answer, _ in answers), complaints, int(bool(complaints)))

    def _squeue(self, columns: str) -> str:
        first, *_, last = (column.partition(":")[2] for column in columns.split(","))
        width = len(columns.split(","))
        return "".join(f"{first.join(row[:width])}{last}\n" for row in self.shown.rows)

    def _scontrol(self, question: str) -> tuple[str, str]:
        if question.startswith("show hostnames "):
            return "".join(f"{name}\n" for name in question.split(" ")[-1].split(",")), ""
        if question == "show config":
            return re.sub(r"(?<=as of )\d+", f"{time.time():.0f}", _recorded("config")), ""
        if question == "show reservation":
            return "No reservations in the system\n", ""
        if question in ("show partition", "show node", "show topology"):
            name = question.removeprefix("show ")
            return _recorded(name if name == "topology" else f"{name}s"), ""
        if question == "show job":
            return "".join(self.shown.records.values()), ""
        assert question.startswith("show job "), question
        self.asked_for += 1
        key = question.removeprefix("show job ")
        raw_ids = {int(row.raw_id) for row in self.shown.rows if key in (row.key, row.raw_id)}
        if not raw_ids:
            return "", "slurm_load_jobs error: Invalid job id specified\n"
        return "".join(self.shown.records[raw_id] for raw_id in sorted(raw_ids)), ""


@cache
def _recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_bytes().decode()


@contextmanager
def commands() -> Iterator[Commands]:
    answering = Commands(honest())
    with patch.object(process, "run", answering.run):
        yield answering


@cache
def _observed_honestly() -> Observation:
    with commands():
        return CommandSlurm().observe()


def readings(content: bytes) -> Iterator[tuple[str, Observation]]:
    """Yield the hostile job's key and the driver's observation: once with the text present from the
    beginning, when scontrol is asked about all jobs, and once with the text added later."""
    key, texts = written(content)
    spoilt = honest().with_text(key, texts)
    for before in ((), (honest(),)):
        slurm = CommandSlurm()
        with commands() as answering:
            for shown in (*before, spoilt):
                answering.shown = shown
                answering.asked_for = 0
                seen = slurm.observe()
        assert answering.asked_for <= MOST_JOBS_ONE_BY_ONE, "forged records are asked for"
        yield key, seen


def read(content: bytes) -> None:
    """Run a cycle with the hostile text; check that the other jobs are observed as without it, and
    that it takes little CPU time."""
    began_s = time.process_time()
    for key, seen in readings(content):
        expected = {job.key: job for job in _observed_honestly().jobs}
        observed = {job.key: job for job in seen.jobs}
        assert observed.keys() == expected.keys()
        for other in expected.keys() - {key}:
            assert observed[other] == expected[other], f"job {other} is seen otherwise"
        assert _without_jobs(seen) == _without_jobs(_observed_honestly())
    _decide(seen)
    assert time.process_time() - began_s < MOST_CPU_S


def _without_jobs(seen: Observation) -> Observation:
    return replace(seen, at_s=0.0, steady_s=0.0, jobs=())


@cache
def _profiler() -> Profiler:
    # Cached, because computing the built-in profiles takes a while.
    return Profiler(ProfileStore(None), CONFIG)


def _decide(seen: Observation) -> None:
    cluster = replace(parse_config.cluster(_recorded("config"), seen.at_s), accounting=False)
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder,
        closing(Ledger(Path(folder) / "ledger")) as ledger,
    ):
        slurm = cast(Slurm, SimpleNamespace(observe=lambda: seen))
        cycles = Cycles(slurm, cluster, ledger, CONFIG, _profiler())
        plan = cycles.run(SHADOW).plan
    alive = {job.key for job in seen.jobs if job.state is not None}
    assert plan.decisions.keys() == alive
