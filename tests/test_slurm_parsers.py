"""The parsers on the recorded output of real clusters, one folder per release (``scripts/dev
record``)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import assume, example, given
from hypothesis import strategies as st

from scripts.testbed.hostile_text import HOSTILE_TEXT
from scripts.testbed.job_shapes import REQUESTS, request_on
from scripts.testbed.row_memory import RowMemory
from slurm_tiresias.errors import SlurmAnswerError, SlurmPermissionError, SlurmUnreachableError
from slurm_tiresias.model import ANY_TYPE, Amount, JobState, JobStatus, Node, Request
from slurm_tiresias.slurm import (
    commands,
    job_details,
    job_rows,
    notation,
    parse_accounting,
    parse_config,
    parse_jobs,
    parse_nodes,
    process,
    write_lines,
)
from slurm_tiresias.slurm import release as releases
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.parse_jobs import RowReader
from slurm_tiresias.slurm.protocol import (
    Partition,
    Requeue,
    Reservation,
    Unpin,
    Update,
    Write,
    WriteFailure,
)
from slurm_tiresias.slurm.release import Release

RELEASES = sorted(path for path in (Path(__file__).parent / "slurm" / "recorded").iterdir())
SEPARATOR = "\x1erecorded\x1e"
OLDEST = releases.of((*releases.TESTED[0], 0))

GARBAGE = st.text(max_size=200) | st.text(alphabet="gpu:/=(),0123456789KMns[]-|_ \n", max_size=40)


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


@pytest.fixture(
    params=[path for path in RELEASES if (path / "refusals.json").exists()],
    ids=lambda path: path.name,
)
def refusing(request: pytest.FixtureRequest) -> Path:
    """A release with additional recordings of refusals, and of jobs that lose their nodes."""
    assert isinstance(request.param, Path)
    return request.param


def recorded(release: Path, name: str) -> str:
    return (release / f"{name}.txt").read_bytes().decode()


def of_folder(release: Path) -> Release:
    return releases.of(releases.version_in(f"{release.name}.0"))


def rows_of(release: Path) -> tuple[JobRow, ...]:
    return tuple(job_rows.rows(recorded(release, "squeue"), SEPARATOR, of_folder(release)))


def row_named(release: Path, name: str) -> JobRow:
    return next(row for row in rows_of(release) if row.name == name)


def records_of(release: Path) -> Mapping[int, str]:
    """scontrol's records of the recorded jobs by their numbers."""
    return job_details.records_of_all(recorded(release, "jobs"))


def read(rows: Sequence[JobRow], records: Mapping[int, str]) -> Sequence[JobStatus]:
    """Parse rows that are seen for the first time, together with these records."""
    memory = RowMemory()
    memory.learn(rows, records)
    return memory.jobs(rows)


def jobs_of(release: Path) -> Mapping[str, JobStatus]:
    """The recorded jobs by name, parsed together with scontrol's records of them."""
    return {job.spec.name: job for job in reversed(read(rows_of(release), records_of(release)))}


# --------------------------------------------------------------------------- jobs


@pytest.mark.parametrize("shape", REQUESTS)
def test_every_shape_of_job_becomes_its_request(release: Path, shape: str) -> None:
    expected = request_on(of_folder(release).series, shape)
    tiers = {
        partition.name: partition.priority_tier
        for partition in parse_nodes.partitions(recorded(release, "partitions"))
    }
    in_slurms_order = tuple(sorted(expected.partitions, key=lambda name: -tiers[name]))
    assert jobs_of(release)[shape].spec.request == replace(expected, partitions=in_slurms_order)


ONE_GPU = Request(Amount({ANY_TYPE: 1}, 1, 500), max_chunks_per_node=1, max_nodes=1)
ANYWHERE = Request(Amount({ANY_TYPE: 1}), max_nodes=40)


@pytest.mark.parametrize(
    ("options", "shown", "expected"),
    [
        ("--gres=gpu:1,gpu:1", {"tres_per_node": "gres:gpu:1,gres:gpu:1"}, ONE_GPU),
        ("--gres=gpu:2,gpu:1", {"tres_per_node": "gres/gpu:2,gres/gpu:1"}, ONE_GPU),
        ("--gres=gpu:1,gpu:0", {"tres_per_node": "gres:gpu:1,gres:gpu:0"}, ONE_GPU),
        (
            "--gpus-per-task=2,1 -n1",
            {"tres_per_node": "N/A", "tres_per_task": "gres:gpu:2,gres:gpu:1"},
            replace(ONE_GPU, max_chunks_per_node=None),
        ),
        (
            "--gres=gpu:1 -n8 --ntasks-per-node=4 -N1-3",
            {"tasks": "8", "cpus": "8", "tasks_per_node": "4", "cpus_per_node": "4"},
            replace(
                *(ONE_GPU,),
                chunk=Amount({ANY_TYPE: 1}, 4, 2000),
                chunks=2,
                min_nodes=2,
                max_nodes=2,
            ),
        ),
        (
            "--gres=gpu:1 -n20 -N1-2",
            {"tasks": "20", "cpus": "20"},
            replace(ONE_GPU, chunk=Amount({ANY_TYPE: 1}, 20, 10_000), cpus_vary=True),
        ),
        ("--gres=gpu:1 -n40 --overcommit", {"tasks": "40"}, ONE_GPU),
        (
            "--gpus=1 -n40",
            {"tasks": "40", "cpus": "40", "tres_per_node": "", "tres_per_job": "gres:gpu:1"},
            replace(ANYWHERE, chunk=Amount({ANY_TYPE: 1}, 40, 20_000), cpus_vary=True),
        ),
        (
            "--gpus=1 -n40 --overcommit",
            {"tasks": "40", "tres_per_node": "", "tres_per_job": "gres:gpu:1"},
            replace(ANYWHERE, per_node=Amount(cpus=1, memory_mb=500)),
        ),
        (
            "--gpus-per-task=1 -n40 --overcommit -c10",
            {
                "tasks": "40",
                "tres_per_node": "",
                "tres_per_task": "gres:gpu:1",
                "cpus_per_task": "10",
                "cpus_per_node": "10",
            },
            replace(ANYWHERE, chunks=40, per_node=Amount(cpus=10)),
        ),
        (
            "--gpus-per-socket=1 --sockets-per-node=2",
            {"sockets": "2", "tres_per_node": "", "tres_per_socket": "gres:gpu:1"},
            replace(
                *(ONE_GPU,),
                chunk=Amount({ANY_TYPE: 2}, 1, 500),
                gpus_vary=True,
                opaque="--gpus-per-socket",
            ),
        ),
    ],
)
def test_unusual_requests_are_counted_as_slurm_counts_them(
    options: str, shown: dict[str, str], expected: Request
) -> None:
    """As 22.05 showed these options of sbatch on nodes of four GPUs and 16 CPUs."""
    row = row_named(RELEASES[0], "a license")._replace(**shown)
    (job,) = read([row], records_of(RELEASES[0]))
    assert job.spec.request == replace(expected, partitions=("gpu",)), options


@pytest.mark.parametrize(
    ("name", "state", "slurm_state"),
    [
        ("later", JobState.PENDING, "PENDING"),
        ("dependent", JobState.PENDING, "PENDING"),
        ("requeued", JobState.PENDING, "PENDING"),
        ("spread over nodes", JobState.RUNNING, "RUNNING"),
        ("suspended", JobState.RUNNING, "SUSPENDED"),
        ("interactive", JobState.RUNNING, "RUNNING"),
        ("completing after a requeue", JobState.COMPLETING, "COMPLETING"),
        ("completing at its end", JobState.COMPLETING, "COMPLETING"),
        ("completed", None, "COMPLETED"),
        ("failed", None, "FAILED"),
        ("cancelled", None, "CANCELLED"),
    ],
)
def test_slurms_states_are_mapped_to_job_states(
    release: Path, name: str, state: JobState | None, slurm_state: str
) -> None:
    job = jobs_of(release)[name]
    assert (job.state, job.slurm_state) == (state, slurm_state)


def test_a_requeued_job_that_completes_has_neither_start_nor_end(release: Path) -> None:
    requeued = jobs_of(release)["completing after a requeue"]
    ending = jobs_of(release)["completing at its end"]
    assert (requeued.start_s, requeued.end_s, requeued.restarts) == (None, None, 1)
    assert ending.start_s is not None
    assert ending.end_s is not None


def test_an_end_is_a_forecast_by_slurms_clock_and_not_by_this_hosts(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = (row for row in rows_of(release) if row.name == "completing after a requeue")
    rows = [row._replace(end=row.submit)]
    shown_s = notation.epoch(row.submit)
    assert shown_s is not None

    def end_s(slurms_s: float, this_hosts_s: float) -> float | None:
        monkeypatch.setattr(time, "time", lambda: this_hosts_s)
        memory = RowMemory(slurms_s)
        memory.learn(rows, {})
        return memory.jobs(rows)[0].end_s

    assert end_s(shown_s - 60, shown_s + 60) is None
    assert end_s(shown_s + 60, shown_s - 60) == shown_s


def test_a_job_that_was_cancelled_while_it_waited_never_started(release: Path) -> None:
    jobs = jobs_of(release)
    cancelled, failed = jobs["cancelled"], jobs["failed"]
    assert (cancelled.start_s, cancelled.elapsed_s) == (None, 0)
    assert cancelled.end_s is not None
    assert failed.start_s is not None, "though it ran for less than a second"


def test_a_pending_jobs_forecast_is_no_start_and_its_begin_time_shows(release: Path) -> None:
    later = jobs_of(release)["later"]
    assert later.start_s is None
    assert later.eligible_s is not None
    assert 3590 <= later.eligible_s - later.spec.submit_s <= 3610


def test_held_interactive_unrequeuable_and_het_jobs_are_recognized(release: Path) -> None:
    jobs = jobs_of(release)
    assert jobs["no requeue"].held
    assert not jobs["no requeue"].spec.requeue
    assert not jobs["interactive"].spec.batch
    assert jobs["het"].spec.het
    assert not jobs["requeued"].spec.het
    assert not jobs["requeued"].held


def test_tasks_of_an_array_have_their_own_keys_and_unsplit_ones_one_record(release: Path) -> None:
    tasks = [row for row in rows_of(release) if row.name == "array"]
    first, *waiting = sorted(read(tasks, {}), key=lambda job: job.key)
    array = first.spec.array_id
    assert [job.key for job in waiting] == [f"{array}_1", f"{array}_2"]
    assert first.key == f"{array}_0"
    assert not first.unsplit_array
    assert all(job.unsplit_array and job.raw_id == array for job in waiting)


def test_a_running_jobs_resources_are_known_per_node(release: Path) -> None:
    held = jobs_of(release)["spread over nodes"].allocation
    assert sorted(amount.gpu_count for amount in held.values()) == [1, 2]
    assert all(amount.cpus == 1 and amount.memory_mb == 500 for amount in held.values())


def test_a_hostile_name_is_read_verbatim_and_forges_no_record(release: Path) -> None:
    rows = rows_of(release)
    jobs = jobs_of(release)
    named, commented = jobs[HOSTILE_TEXT], jobs["hostile"]
    assert commented.spec.comment == HOSTILE_TEXT
    assert len({row.key for row in rows}) == len(rows)
    assert [sum(amount.gpu_count for amount in job.allocation.values()) for job in (named,)] == [1]
    assert [amount.gpu_count for amount in commented.allocation.values()] == [2]


def test_a_duplicated_record_is_rejected(release: Path) -> None:
    """The hostile texts claim to be job 1, so job 1 seems to have several records."""
    records = records_of(release)
    assert 1 not in records
    assert len(records) == len({row.raw_id for row in rows_of(release)}) - 1


def test_one_jobs_answer_is_its_first_record_whatever_follows() -> None:
    answer = "JobId=7 JobName=x\nJobId=8 JobName=y\n"
    assert set(job_details.record_of_one(answer)) == {7}
    assert job_details.record_of_one("") == {}


def test_details_that_disagree_with_squeue_are_discarded(release: Path) -> None:
    records = records_of(release)
    row = row_named(release, "spread over nodes")
    fields = parse_jobs.fields(row)
    record = records[fields.raw_id]
    assert job_details.details(record, fields) is not None
    for forged in (
        record.replace("GRES=gpu:2", "GRES=gpu:4"),
        record.replace("JobState=RUNNING", "JobState=PENDING"),
        record.replace("JobName=spread", "JobName=other"),
        record.replace(" MinTmpDiskNode=", " "),
        record.replace("NodeList=n", "NodeList=m"),
        record.replace("NumNodes=2", "NumNodes=x"),
    ):
        assert forged != record
        assert job_details.details(forged, fields) is None


def test_spread_and_consolidated_segments_make_a_job_opaque(release: Path) -> None:
    row = row_named(release, "spread over nodes")._replace(segment="1")
    number = int(row.raw_id)
    spread = f"{records_of(release)[number].rstrip()} SegmentSize=1 SpreadSegments=Yes\n"
    (job,) = read([row], {number: spread})
    assert (job.spec.request.segment, job.spec.request.opaque) == (1, "--spread-segments")


def test_without_details_a_running_jobs_holding_is_split_evenly(release: Path) -> None:
    row = row_named(release, "spread over nodes")
    memory = RowMemory()
    memory.learn([row], {})
    (job,) = memory.jobs([row])
    assert sorted(amount.gpu_count for amount in job.allocation.values()) == [1, 2]
    assert [row.key for row in memory.unknown([row])] == [row.key], "it is asked about again"


def test_scontrol_is_asked_once_about_an_unchanged_job(release: Path) -> None:
    """Two kinds are asked about again: jobs whose hostile texts spoil the answer about all jobs,
    and waiting arrays, whose limit of running tasks may change at any time."""
    rows = rows_of(release)
    memory = RowMemory()
    memory.learn(rows, records_of(release))
    spoilt = {row.key for row in rows if row.raw_id == "1" or row.name == HOSTILE_TEXT}
    # For a waiting array only one task is queried.
    tasks = [row for row in rows if "_" in row.key and row.state == "PENDING"]
    first_tasks = {row.raw_id: row.key for row in reversed(tasks) if row.raw_id == row.array_id}
    assert {row.key for row in memory.unknown(rows)} == spoilt | set(first_tasks.values())


def test_a_hostile_job_asked_about_singly_is_known(release: Path) -> None:
    row = row_named(release, HOSTILE_TEXT)
    answer = recorded(release, "jobs")
    at = answer.index(f"JobId={row.raw_id} ")
    memory = RowMemory()
    memory.learn([row], job_details.record_of_one(answer[at:]))
    (job,) = memory.jobs([row])
    assert memory.unknown([row]) == ()
    assert [amount.gpu_count for amount in job.allocation.values()] == [1]


def test_a_running_jobs_request_is_still_what_it_asked_for(release: Path) -> None:
    pending = row_named(release, "eight GPUs anywhere")
    running = JobRow(
        **{name: getattr(pending, name) for name in job_rows.FIELDS}
        | {"state": "RUNNING", "nodes": "3", "most_nodes": "3", "tasks": "3", "cpus": "3"}
        | {"node_list": "n[1-3]", "start": "1700000000", "tres": "cpu=3,mem=1500M,node=3"}
    )
    memory = RowMemory()
    memory.learn([pending], records_of(release))
    memory.learn([running], {})
    (job,) = memory.jobs([running])
    assert job.spec.request == REQUESTS["eight GPUs anywhere"]
    assert sum(amount.gpu_count for amount in job.allocation.values()) == 8


def requeued_on_two_nodes(release: Path) -> tuple[JobRow, JobRow, str]:
    """A job with ``-N2`` while it waits, and after a requeue: its bounds are no longer shown."""
    waiting = row_named(release, "eight GPUs anywhere")
    waiting = waiting._replace(nodes="2-2", tasks="2", cpus="2", restarts="0")
    requeued = waiting._replace(nodes="2", most_nodes="2", restarts="1", tres="cpu=2,node=2")
    return waiting, requeued, records_of(release)[int(waiting.raw_id)]


def test_a_requeued_job_may_still_have_as_many_nodes_as_it_asked_for(release: Path) -> None:
    waiting, requeued, record = requeued_on_two_nodes(release)
    bounded = re.sub(r" NumNodes=\S+", " NumNodes=2-2", record)
    unbounded = re.sub(r" NumNodes=\S+", " NumNodes=2", record)
    memory = RowMemory()
    memory.learn([waiting], {int(waiting.raw_id): bounded})
    memory.learn([requeued], {int(waiting.raw_id): unbounded})
    (job,) = memory.jobs([requeued])
    assert (job.spec.request.min_nodes, job.spec.request.max_nodes) == (2, 2)


def test_a_requeued_job_first_seen_running_gets_no_more_nodes(release: Path) -> None:
    """Slurm holds a job for good if its list has more nodes than it may use."""
    _, requeued, record = requeued_on_two_nodes(release)
    on_three = requeued._replace(nodes="3", most_nodes="3")
    unbounded = re.sub(r" NumNodes=\S+", " NumNodes=3", record)
    (job,) = read([on_three], {int(on_three.raw_id): unbounded})
    assert (job.spec.request.min_nodes, job.spec.request.max_nodes) == (2, 3)


def test_jobs_with_equal_requests_share_one_request_object(release: Path) -> None:
    """Equal requests are one object, so that deciding on thousands of them needs no comparison."""
    jobs = read(rows_of(release), records_of(release))
    for one, other in combinations(jobs, 2):
        assert (one.spec.request is other.spec.request) == (one.spec.request == other.spec.request)


def test_a_jobs_request_is_the_same_object_until_it_changes(release: Path) -> None:
    rows = rows_of(release)
    memory = RowMemory()
    records = records_of(release)
    memory.learn(rows, records)
    before = memory.jobs(rows)
    tried = [row._replace(priority="7", reason="Resources", time_used="1:00") for row in rows]
    memory.learn(tried, records)
    after = memory.jobs(tried)
    assert all(
        one != other and one.spec is other.spec for one, other in zip(before, after, strict=True)
    )
    told = [row._replace(comment="tiresias:placement=spread") for row in tried]
    memory.learn(told, records)
    assert not any(
        one.spec is other.spec for one, other in zip(after, memory.jobs(told), strict=True)
    )


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.999])
def test_a_cut_off_answer_is_refused(release: Path, kept: float) -> None:
    answer = recorded(release, "squeue")
    with pytest.raises(SlurmAnswerError):
        tuple(job_rows.rows(answer[: int(len(answer) * kept)], SEPARATOR, of_folder(release)))


def test_an_empty_queue_has_no_rows() -> None:
    assert tuple(job_rows.rows("", SEPARATOR, OLDEST)) == ()
    assert tuple(job_rows.rows("\n", SEPARATOR, OLDEST)) == ()


@pytest.mark.parametrize("field", ["tres_per_node", "tres_per_job", "memory_per_tres"])
def test_an_unparsable_value_makes_only_that_job_unreadable(release: Path, field: str) -> None:
    rows = list(rows_of(release))
    at = next(n for n, row in enumerate(rows) if row.name == "spread over nodes")
    records = records_of(release)
    odd = [*rows]
    odd[at] = rows[at]._replace(**{field: "gres:gpu:x:-2"})
    pairs = zip(read(rows, records), read(odd, records), strict=True)
    [(was, now)] = [(was, now) for was, now in pairs if was != now]
    assert now.unreadable and now.spec.request.gpu_count == 0
    assert sum(a.gpu_count for a in now.allocation.values()) == sum(
        a.gpu_count for a in was.allocation.values()
    ), "what it holds is known from Slurm's own sums"


ODD = ("1.5E", "h100:1.5", "gres/gpu=h100:1.5", "-1", "ENCHANTED", "9" * 25, "n[1-", "\x00")


@pytest.mark.parametrize(
    "field", [name for name in JobRow._fields if name not in ("key", "raw_id")]
)
@pytest.mark.parametrize("name", ["spread over nodes", "later", "completed"])
def test_an_unreadable_field_drops_no_job(name: str, field: str) -> None:
    release = RELEASES[0]
    rows = list(rows_of(release))
    records = records_of(release)
    at = next(n for n, row in enumerate(rows) if row.name == name)
    was = {job.key: job for job in read(rows, records)}
    for odd in ODD:
        spoilt = [*rows]
        spoilt[at] = rows[at]._replace(**{field: odd})
        later = RowMemory()
        later.learn(rows, records)
        later.learn(spoilt, records)
        for jobs in (read(spoilt, records), later.jobs(spoilt)):
            now = {job.key: job for job in jobs}
            assert now.keys() == was.keys()
            assert {key for key in now if now[key] != was[key]} <= {rows[at].key}


@pytest.mark.parametrize("field", ["cpus", "priority", "restarts", "submit", "start", "time_used"])
def test_resources_of_an_unreadable_job_still_count_as_used(field: str) -> None:
    release = RELEASES[0]
    rows = list(rows_of(release))
    at = next(n for n, row in enumerate(rows) if row.name == "spread over nodes")
    rows[at] = rows[at]._replace(**{field: "1.5E"})
    job = read(rows, {})[at]
    assert "1.5E" in job.unreadable and job.state is JobState.RUNNING
    assert sum(amount.gpu_count for amount in job.allocation.values()) == 3


@pytest.mark.parametrize(
    ("was", "odd"),
    [
        ("RealMemory=", "RealMemory=1.5E"),
        ("CPUEfctv=", "CPUEfctv=many"),
        ("Gres=gpu:", "Gres=gpu:h100:1.5"),
        ("MemSpecLimit=", "MemSpecLimit=1.5E"),
        (" State=", " "),
        (" State=", " State=ENCHANTED+"),
    ],
)
def test_a_node_that_cannot_be_read_starts_nothing_and_the_others_do(was: str, odd: str) -> None:
    release = RELEASES[0]
    partitions = parse_nodes.partitions(recorded(release, "partitions"))
    answer = recorded(release, "nodes")
    line = next(line for line in answer.splitlines() if line.startswith("NodeName=n2 "))
    line_odd = line.replace(was, odd, 1) if was in line else f"{line} {odd}"
    complaints: list[SlurmAnswerError] = []
    honest = parse_nodes.nodes(answer, partitions, {})
    found = parse_nodes.nodes(answer.replace(line, line_odd), partitions, {}, complaints.append)
    assert [node.name for node in found] == [node.name for node in honest]
    different = {now.name: now for was, now in zip(honest, found, strict=True) if was != now}
    assert different.keys() == {"n2"}
    assert not different["n2"].available
    assert len(complaints) == ("ENCHANTED" not in odd)


def test_a_partition_that_cannot_be_read_starts_nothing_and_the_others_do() -> None:
    answer = recorded(RELEASES[0], "partitions")
    complaints: list[SlurmAnswerError] = []
    odd = answer.replace("PriorityTier=10", "PriorityTier=high")
    assert odd != answer
    found = {one.name: one for one in parse_nodes.partitions(odd, complaints.append)}
    assert (found["gpu"].up, found["other"].up, len(complaints)) == (True, False, 1)


def test_a_reservation_or_a_switch_that_cannot_be_read_is_passed_over() -> None:
    complaints: list[SlurmAnswerError] = []
    good = "ReservationName=a StartTime=1 EndTime=2 Nodes=n1 TRES=cpu=16\n"
    odd = "ReservationName=b StartTime=soon EndTime=2 Nodes=n1 TRES=cpu=16\n"
    (found,) = parse_nodes.reservations(odd + good, [], complaints.append)
    assert found.name == "a"
    switches = "SwitchName=s0 Level=0 Nodes=n[1-\nSwitchName=s1 Level=0 Nodes=n2\n"
    assert parse_nodes.locations(switches, "", complaints.append) == {
        "n2": parse_nodes.Location("s1")
    }
    assert len(complaints) == 2


@pytest.mark.parametrize("reason", ["JobHeldUser", "None"])
def test_an_untried_job_is_asked_about_again_when_tried(release: Path, reason: str) -> None:
    """24.11 and later show a bound of one node until then; nothing else changes in squeue."""
    tried = row_named(release, "eight GPUs anywhere")
    tried = tried._replace(priority="5", reason="Resources")
    untried = tried._replace(reason=reason, priority="5" if reason == "None" else "0")
    memory = RowMemory()
    memory.learn([untried], records_of(release))
    assert memory.unknown([untried]) == ()
    assert memory.unknown([tried]) == (tried,)


# --------------------------------------------------------------------------- what Slurm refuses


def refusals(release: Path) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = json.loads((release / "refusals.json").read_text())
    return answers


def test_a_refused_write_is_attributed_to_its_job(refusing: Path) -> None:
    said = refusals(refusing)["writes"]
    gone, waiting, running, _, ended, gone_too, nowhere = said["keys"]
    assert len({gone, waiting, running, ended}) == 4
    writes: list[Write] = [
        Update(gone, priority=5),
        Update(waiting, priority=5),
        Update(running, node_list="n4"),
        Requeue(waiting),
        Requeue(ended),
        Unpin(gone_too),
        Update(nowhere, node_list="nowhere"),
    ]
    answered, failures = write_lines.answers(writes, said["stderr"], "after-recorded-")
    assert answered == len(writes)
    assert [failure.write for failure in failures] == [writes[0], writes[2], writes[5], writes[6]]
    assert not any(process.is_denial(failure.message) for failure in failures)


def test_a_slurmctld_that_is_down_raises_its_own_error(refusing: Path) -> None:
    said = refusals(refusing)
    assert " UP" not in said["slurmctld is down: ping"]["stdout"]
    for command in ("squeue", "scontrol", "write"):
        complaint = process.complaint(command, said[f"slurmctld is down: {command}"]["stderr"])
        assert isinstance(complaint, SlurmUnreachableError), complaint
    for what in ("no such job", "no such job in the queue", "no such job to cancel"):
        complaint = process.complaint("scontrol", said[what]["stderr"])
        assert not isinstance(complaint, SlurmUnreachableError | SlurmPermissionError)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "squeue: error: fetch_config: DNS SRV lookup failed\n"
            "squeue: error: _establish_config_source: failed to fetch config\n"
            "squeue: fatal: Could not establish a configuration source\n",
            "squeue finds no configuration of Slurm: Could not establish a configuration source. "
            "Give this host slurm.conf, or name its path in SLURM_CONF.",
        ),
        (
            "sacct: error: _open_persist_conn: failed to open persistent connection to host\n"
            "sacct: error: Sending PersistInit msg: Connection refused\n"
            "sacct: error: Problem talking to the database: Connection refused\n",
            "sacct cannot reach Slurm: Problem talking to the database: Connection refused. "
            "Check whether slurmctld, munged and, for sacct, slurmdbd are up.",
        ),
    ],
)
def test_an_unreachable_slurm_is_told_in_one_short_line(said: str, told: str) -> None:
    assert str(process.complaint(said.partition(":")[0], said)) == told


def test_a_slurmctld_that_is_down_is_told_without_scontrols_banner(
    refusing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusals(refusing)["slurmctld is down: ping"]
    answer = process.Answer(said["stdout"], said["stderr"], said["status"])
    monkeypatch.setattr(process, "run", lambda *_arguments, **_named: answer)
    with pytest.raises(SlurmUnreachableError) as caught:
        CommandSlurm().cluster()
    assert str(caught.value) == (
        "slurmctld is down: Slurmctld(primary) at login is DOWN. "
        "Start slurmctld, or check whether this host reaches it."
    )


def test_a_job_that_is_gone_is_not_an_error(refusing: Path) -> None:
    for line in refusals(refusing)["no such job"]["stderr"].splitlines():
        assert commands._NOT_THERE.fullmatch(line)


# --------------------------------------------------------------------------- releases


def test_only_untested_releases_are_warned_about() -> None:
    assert not any(releases.warning_about((*of_folder(path).series, 1)) for path in RELEASES)
    assert not releases.warning_about((25, 11, 2))
    assert "newer than 26.05" in releases.warning_about((99, 5, 0))
    assert "older than 22.05" in releases.warning_about((21, 8, 8))


def test_an_unknown_newer_release_is_taken_for_the_newest_known() -> None:
    newest, unknown = releases.of((*releases.TESTED[-1], 99)), releases.of((99, 5, 0))
    assert replace(unknown, version=newest.version) == newest


def test_no_recording_names_the_machine_it_was_made_on(release: Path) -> None:
    """The recording has no kernel version, no user's folders, and no name except those that every
    such cluster has."""
    for file in release.iterdir():
        recording = file.read_text()
        assert set(re.findall(r"OS=Linux (\S+)", recording)) <= {"6.1.0"}, file
        assert set(re.findall(r"AllocNode:Sid=([^:]+):", recording)) <= {"localhost"}, file
        assert not re.search(r"/(?:home|work|root)/", recording), file


# --------------------------------------------------------------------------- nodes, partitions


def test_nodes_have_their_totals_features_and_partitions(release: Path) -> None:
    partitions = parse_nodes.partitions(recorded(release, "partitions"))
    nodes = parse_nodes.nodes(
        recorded(release, "nodes"),
        partitions,
        {"": parse_nodes.locations(recorded(release, "topology"))},
    )
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
    assert nodes[0].total == Amount({ANY_TYPE: 4}, 16, 8000)
    assert nodes[0].features == {"fast", "ib"}
    assert nodes[0].partitions == {"gpu", "other"}
    assert [node.switch for node in nodes] == ["leaf-a", "leaf-a", "leaf-b", "leaf-b"]
    assert all(node.available for node in nodes)


def test_drained_failing_and_reserved_nodes_start_nothing(release: Path) -> None:
    partitions = parse_nodes.partitions(recorded(release, "odd-partitions"))
    nodes = parse_nodes.nodes(recorded(release, "odd-nodes"), partitions, {})
    assert {node.name: node.available for node in nodes} == {
        **dict.fromkeys(("n1", "n2", "n3"), False),
        "n4": True,
    }


def test_the_nodes_of_a_partition_that_is_down_do_not_count_for_it(release: Path) -> None:
    partitions = parse_nodes.partitions(recorded(release, "odd-partitions"))
    nodes = parse_nodes.nodes(recorded(release, "odd-nodes"), partitions, {})
    assert [(one.name, one.up) for one in partitions] == [("gpu", True), ("other", False)]
    assert all(node.partitions == {"gpu"} for node in nodes)


def test_the_limits_of_a_partition_are_read(release: Path) -> None:
    limited = recorded(release, "partitions").replace("MaxNodes=UNLIMITED", "MaxNodes=2")
    for was, now in (
        ("MaxTime=UNLIMITED", "MaxTime=1-00:00:00"),
        ("MaxCPUsPerNode=UNLIMITED", "MaxCPUsPerNode=8"),
        ("AllowAccounts=ALL", "DenyAccounts=physics,biology"),
        ("AllowQos=ALL", "AllowQos=normal,long"),
        ("State=UP", "State=DRAIN"),
    ):
        assert was in limited
        limited = limited.replace(was, now)
    (plain, *_), (gpu, *_) = map(parse_nodes.partitions, (recorded(release, "partitions"), limited))
    assert plain == Partition("gpu", frozenset({"n1", "n2", "n3", "n4"}), True)
    assert (gpu.up, gpu.most_nodes, gpu.longest_s, gpu.most_cpus_per_node) == (True, 2, 86400, 8)
    assert gpu.accounts is None and gpu.denied_accounts == {"physics", "biology"}
    assert gpu.qos == frozenset({"normal", "long"}) and not gpu.denied_qos


@pytest.mark.parametrize(("state", "up"), [("DOWN", False), ("INACTIVE", False), ("DRAIN", True)])
def test_a_partition_that_drains_starts_what_waits_in_it(state: str, up: bool) -> None:
    (one,) = parse_nodes.partitions(f"PartitionName=gpu Nodes=n1 State={state}\n")
    assert one.up is up


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE", True),
        ("MIXED+COMPLETING", True),
        ("ALLOCATED+PLANNED", True),
        ("IDLE+CLOUD", True),
        ("IDLE*", False),
        ("IDLE+DRAIN", False),
        ("MIXED+DRAIN", False),
        ("DOWN+NOT_RESPONDING", False),
        ("IDLE+CLOUD+POWERED_DOWN", True),
        ("IDLE+POWERED_DOWN+POWER_UP", True),
        ("MIXED+NOT_RESPONDING+POWERING_UP", True),
        ("IDLE+DYNAMIC_FUTURE", True),
        ("IDLE+POWER_DOWN", False),
        ("IDLE+POWERING_DOWN", False),
        ("IDLE+DRAIN+POWERED_DOWN", False),
        ("IDLE+NOT_RESPONDING", False),
        ("FUTURE", False),
        ("IDLE+MAINTENANCE+RESERVED", False),
        ("UNKNOWN", False),
        ("IDLE+INVALID_REG", False),
        ("FAIL", False),
    ],
)
def test_only_the_states_that_start_jobs_are_available(state: str, available: bool) -> None:
    (node,) = parse_nodes.nodes(f"NodeName=a CPUTot=4 RealMemory=10 State={state}\n", (), {})
    assert node.available is available


RESERVATIONS = (
    "ReservationName=soon StartTime=1795312897 EndTime=1795313497 Duration=00:10:00 Nodes=n[1-2] "
    "NodeCnt=2 CoreCnt=32 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=32 "
    "Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) "
    "Watts=n/a MaxStartDelay=(null)\n"
    "ReservationName=core StartTime=1795312897 EndTime=1795313497 Duration=00:10:00 Nodes=n3 "
    "NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=gpu Flags= TRES=cpu=2 Users=root "
    "Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE\n"
    "ReservationName=lic StartTime=1795312297 EndTime=1795312897 Duration=00:10:00 Nodes=(null) "
    "NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES TRES=(null) "
    "Users=root Groups=(null) Accounts=(null) Licenses=solver:1 State=ACTIVE\n"
)
"""As 22.05 shows them: of nodes, of two cores of one, and of a licence."""


def test_only_reservations_of_whole_nodes_keep_jobs_away() -> None:
    nodes = [Node(f"n{number}", Amount({"": 4}, 16)) for number in (1, 2, 3)]
    assert parse_nodes.reservations(RESERVATIONS, nodes) == (
        Reservation("soon", frozenset({"n1", "n2"}), 1795312897.0, 1795313497.0),
    )
    assert parse_nodes.reservations("No reservations in the system\n", nodes) == ()


def test_a_magnetic_reservation_is_recognized_even_without_whole_nodes() -> None:
    nodes = [Node(f"n{number}", Amount({"": 4}, 16)) for number in (1, 2, 3)]
    magnetic = RESERVATIONS.replace("Flags= ", "Flags=SPEC_NODES,MAGNETIC ")
    _, core = parse_nodes.reservations(magnetic, nodes)
    assert (core.name, core.nodes, core.magnetic) == ("core", frozenset(), True)


def test_specialised_cores_and_memory_are_not_for_jobs() -> None:
    line = "NodeName=a CPUEfctv=14 CPUTot=16 RealMemory=1000 MemSpecLimit=100 State=IDLE\n"
    (node,) = parse_nodes.nodes(line, (), {})
    assert node.total == Amount({}, 14, 900)


# --------------------------------------------------------------------------- small spellings


@pytest.mark.parametrize(
    ("spelled", "counted"),
    [
        ("gres:gpu:4", {ANY_TYPE: 4}),
        ("gres/gpu:4", {ANY_TYPE: 4}),
        ("gres/gpu=4", {ANY_TYPE: 4}),
        ("gres/gpu:a100=2", {"a100": 2}),
        ("gres/gpu:a100:2", {"a100": 2}),
        ("gpu", {ANY_TYPE: 1}),
        ("gres:gpu", {ANY_TYPE: 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:4090:2", {"4090": 2}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:2(IDX:0-1)", {ANY_TYPE: 2}),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:2)", {"a100": 2, "v100": 1}),
        ("cpu=4,mem=2G,node=1,billing=4,gres/gpu=4,gres/gpu:a100=4", {"a100": 4}),
        ("gres/gpu=5,gres/gpu:a100=4", {"a100": 4, ANY_TYPE: 1}),
        ("gpu:2,shard:8,mps:gpu:3", {ANY_TYPE: 2}),
        ("gpu:0", {}),
        ("gpu:x:0t,gpu:0P,gpu:a:0000000000", {}),
        ("gpu:+1", {ANY_TYPE: 1}),
        ("gpu:a100:+0002", {"a100": 2}),
        ("gpu:1k", {ANY_TYPE: 1024}),
        ("gpu:1KiB,gpu:1kb", {ANY_TYPE: 2024}),
        ("gpu:1b", {"1b": 1}),
        ("gpu:1g.5gb:7", {"1g.5gb": 7}),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
    ],
)
def test_gpus_are_counted_in_every_releases_spelling(spelled: str, counted: object) -> None:
    assert notation.gpus(spelled) == counted


@pytest.mark.parametrize(
    "spelled", ["gpu:-1", "gpu:a:-2", "gpu:2p", "gpu:1000001", "gpu:a:b", "gpu:"]
)
def test_a_gpu_count_that_releases_read_differently_is_not_read(spelled: str) -> None:
    with pytest.raises(SlurmAnswerError, match="a GPU count"):
        notation.gpus(spelled)


@pytest.mark.parametrize(
    ("reader", "printed", "value"),
    [
        (notation.span, "0:05", 5.0),
        (notation.span, "2:03:04", 7384.0),
        (notation.span, "1-00:00:01", 86401.0),
        (notation.span, "365-00:00:00", 31536000.0),
        (notation.span, "UNLIMITED", None),
        (notation.mebibytes, "500M", 500),
        (notation.mebibytes, "4G", 4096),
        (notation.mebibytes, "1.50G", 1536),
        (notation.mebibytes, "0", 0),
        (notation.mebibytes, "1025K", 2),
        (releases.version_in, "slurm-wlm 22.05.8\n", (22, 5, 8)),
        (releases.version_in, "slurm 25.11.0-0rc1\n", (25, 11, 0)),
        (releases.version_in, "26.05.5", (26, 5, 5)),
        (notation.node_names, "n[1-3,7]", ("n1", "n2", "n3", "n7")),
        (notation.node_names, "gpu-a[01-02],login", ("gpu-a01", "gpu-a02", "login")),
        (notation.node_names, "(null)", ()),
        (notation.node_names, "n[1-2]88888888888", ("n188888888888", "n288888888888")),
        (notation.node_names, "r[1-2]n[09-10],r1n09", ("r1n09", "r1n10", "r2n09", "r2n10")),
    ],
)
def test_what_slurm_writes_is_read(
    reader: Callable[[str], object], printed: str, value: object
) -> None:
    """Spans in seconds, memory in mebibytes, releases however they are packaged, and hostlists."""
    assert reader(printed) == value


@pytest.mark.parametrize(
    "hostlist",
    [
        *("n[1-9999999]", "n[1-9999]x[1-9999]", "n[1-900000],m[1-900000]", "n" + "[1-999999]" * 80),
        *(
            "n[]",
            "n[1-]x",
            "n[3-1]",
            "n[1-2",
            "n1-2]",
            "n[[1]]",
            "n[1 ]",
            "n[1-2-3]",
            "[1-99",
            "-]",
        ),
        *("n1,,n2", ",n1", "n1,", "n 1"),
    ],
)
def test_an_invalid_or_exhaustingly_long_hostlist_is_refused(hostlist: str) -> None:
    with pytest.raises(SlurmAnswerError, match=r"a node list|a number"):
        notation.node_names(hostlist)


numbers = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), min_size=1)
hosts = st.tuples(
    st.sampled_from(["n", "gpu-a", "x.y-"]),
    numbers.map(lambda found: ",".join(f"{low}-{high}" for low, high in found)),
    st.sampled_from(["", "-ib", "x"]),
).map(lambda parts: "{}[{}]{}".format(*parts)) | st.sampled_from(["login", "n7", "n[08-11]"])


@given(st.lists(hosts, min_size=1, max_size=4).map(",".join))
def test_hostlists_expand_to_the_same_names_as_with_clustershell(hostlist: str) -> None:
    expected = {str(name) for name in NodeSet(hostlist, resolver=RESOLVER_NOGROUP)}
    names = notation.node_names(hostlist)
    assert set(names) == expected
    assert len(names) == len(expected)


def test_names_with_several_ranges_in_each_are_listed_at_once() -> None:
    ranges = ("a[9-98]b[5-39]8", "a[8,12]b[6,14]8c0", "a[7,14]b[5-74]8", "a[8-64]b[7-51]c[2-3]")
    hostlist = ",".join(f"{name}{end}" for name in ranges for end in ("", "x", "y0", "z"))
    began_s = time.process_time()
    assert len(notation.node_names(hostlist)) > 20_000
    assert time.process_time() - began_s < 2


# --------------------------------------------------------------------------- accounting, config


def test_accounting_has_every_run_with_its_gpus(release: Path) -> None:
    requeued = jobs_of(release)["requeued"].key
    completed = jobs_of(release)["completed"].key
    answer = recorded(release, "sacct")
    rows = tuple(parse_accounting.runs(answer, {requeued, completed}))
    assert {(row.key, row.state, row.gpus) for row in rows} == {
        (requeued, "REQUEUED", 1),
        (completed, "COMPLETED", 0),
    }
    for row in rows:
        assert row.start_s is not None and row.end_s is not None
        assert row.elapsed_s == row.end_s - row.start_s


def test_each_way_to_lose_a_node_is_a_run_with_its_own_state(refusing: Path) -> None:
    rows = job_rows.rows(recorded(refusing, "odd-squeue"), SEPARATOR, of_folder(refusing))
    ways = {
        "lost its node": "NODE_FAIL",
        "preempted": "PREEMPTED",
        "cancelled while it ran": "CANCELLED",
    }
    keys = {row.key: ways[row.name] for row in rows if row.name in ways}
    found = list(parse_accounting.runs(recorded(refusing, "odd-sacct"), keys.keys()))
    assert {(each.key, each.state) for each in found} == set(keys.items())
    assert len(found) == len(ways)
    assert all(each.end_s is not None for each in found)


def test_a_job_that_never_started_has_no_run(release: Path) -> None:
    pending = jobs_of(release)["later"].key
    assert not tuple(parse_accounting.runs(recorded(release, "sacct"), {pending}))


ROW = "9|100|130|30|cpu=1,gres/gpu=2|{}|90|{}\n"


@pytest.mark.parametrize(
    ("state", "exit_code", "found"),
    [
        ("CANCELLED by 1000", "0:15", ("CANCELLED", "0:15", 1000)),
        ("FAILED", "3:0", ("FAILED", "3:0", None)),
    ],
)
def test_accounting_says_how_a_run_ended_and_who_cancelled_it(
    state: str, exit_code: str, found: tuple[str, str, int | None]
) -> None:
    (row,) = parse_accounting.runs(ROW.format(state, exit_code), {"9"})
    assert (row.state, row.exit_code, row.cancelled_by) == found
    assert (row.start_s, row.submit_s) == (100, 90)


@pytest.mark.parametrize("start", ["130", "None", "Unknown"])
def test_a_job_cancelled_while_it_waited_has_no_start_in_accounting(start: str) -> None:
    answer = f"9|{start}|130|0||CANCELLED by 0|90|0:0\n"
    (row,) = parse_accounting.runs(answer, {"9"})
    assert (row.start_s, row.end_s) == (None, 130)


@pytest.mark.parametrize(
    "odd",
    [
        "9|soon|130|30|cpu=1|COMPLETED|90|0:0",
        "9|100|130|1.5|cpu=1|COMPLETED|90|0:0",
        "9|100|130|30|cpu=1,gres/gpu=h100:1.5|COMPLETED|90|0:0",
        "9|100|130|30|cpu=1|CANCELLED by eve|90|0:0",
        "9|100",
    ],
)
def test_an_unreadable_accounting_row_is_skipped_and_reported(odd: str) -> None:
    complaints: list[SlurmAnswerError] = []
    answer = f"{odd}\n{ROW.format('COMPLETED', '0:0')}"
    (row,) = parse_accounting.runs(answer, {"9"}, complaints.append)
    assert row.state == "COMPLETED"
    assert len(complaints) == 1


def test_a_task_of_an_array_has_its_own_runs() -> None:
    answer = "9_1|100|Unknown|30|cpu=1,gres/gpu=2,gres/gpu:a100=2|RUNNING|90|0:0\n"
    (row,) = parse_accounting.runs(answer, {"9_1"})
    assert (row.gpus, row.end_s, row.elapsed_s) == (2, None, 30.0)


def test_the_cluster_is_described_by_its_configuration(release: Path) -> None:
    cluster = parse_config.cluster(recorded(release, "config"), 5.0)
    assert ".".join(f"{part:02d}" for part in cluster.version[:2]) == release.name
    assert cluster.priority_type == "priority/multifactor"
    assert cluster.accounting
    assert cluster.kill_wait_s == 30.0
    assert cluster.now_s == 5.0


@pytest.mark.parametrize(
    ("version", "auth_info", "scheduler", "delay_s"),
    [
        ("22.05.8", "(null)", "(null)", 120.0),
        ("22.05.8", "socket=/run/m,cred_expire=15", "defer", 15.0),
        ("24.11.5", "cred_expire=15", "requeue_delay=3", 15.0),
        ("25.11.0", "cred_expire=15", "defer,requeue_delay=3", 3.0),
        ("26.05.1-rc1", "(null)", "requeue_delay=0", 0.0),
    ],
)
def test_slurms_own_wait_after_a_requeue_is_known(
    version: str, auth_info: str, scheduler: str, delay_s: float
) -> None:
    config = "".join(
        f"{key:<24}= {value}\n"
        for key, value in {
            "AccountingStorageType": "(null)",
            "AuthInfo": auth_info,
            "ClusterName": "c",
            "KillWait": "30 sec",
            "PriorityType": "priority/basic",
            "SchedulerParameters": scheduler,
            "SLURM_VERSION": version,
        }.items()
    )
    cluster = parse_config.cluster(config, 0.0)
    assert cluster.requeue_delay_s == delay_s
    assert not cluster.accounting


# --------------------------------------------------------------------------- writes


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (Update("7", priority=3000000000), "update JobId=7 Priority=3000000000"),
        (Update("7_[4-9]", priority=5), "update JobId=7_[4-9] Priority=5"),
        (Update("7", site_factor=-5), "update JobId=7 SiteFactor=-5"),
        (Update("7", node_list="n[1-2]"), "update JobId=7 ReqNodeList=n[1-2] ResetAccrueTime"),
        (Update("7", node_list=""), "update JobId=7 ReqNodeList= ResetAccrueTime"),
        (Update("7_3", node_list="n1"), "update JobId=7_3 ReqNodeList=n1 ResetAccrueTime"),
        (Update("7_3", start_in_s=2), "update JobId=7_3 StartTime=now+2"),
        (Requeue("7_3"), "requeue incomplete 7_3"),
        (Unpin("7+1"), "release 7+1"),
    ],
)
def test_a_write_is_one_line_and_a_node_list_is_guarded(write: Write, line: str) -> None:
    assert write_lines.lines(write) == [line]


def test_a_start_time_is_converted_to_slurms_clock_and_left_out_if_past() -> None:
    soon = Update("7", start_in_s=2)
    assert write_lines.lines(soon, ahead_s=3600.4) == ["update JobId=7 StartTime=now+3602"]
    assert write_lines.lines(soon, ahead_s=-3600.4) == []
    assert write_lines.lines(Update("7", 5, start_in_s=2), -9) == ["update JobId=7 Priority=5"]


def test_a_node_list_for_several_tasks_is_a_line_a_task() -> None:
    assert write_lines.lines(Update("7_[4-5,9]", priority=5, node_list="n1")) == [
        f"update JobId=7_{task} Priority=5 ReqNodeList=n1 ResetAccrueTime" for task in (4, 5, 9)
    ]


@pytest.mark.parametrize(
    "write",
    [
        Update("7"),
        Update("7", priority=0),
        Update("7", priority=4294967295),
        Update("7 Priority=0", priority=5),
        Update("7,8", priority=5),
        Requeue("7\nshutdown"),
        Unpin(""),
    ],
)
def test_an_invalid_write_is_refused_before_it_is_sent(write: Write) -> None:
    with pytest.raises(ValueError):
        write_lines.lines(write)


@pytest.mark.parametrize("node_list", ["n1 Priority=0", "n1\nshutdown", "n1;", "n1\t"])
def test_a_node_list_cannot_carry_another_command(node_list: str) -> None:
    with pytest.raises(SlurmAnswerError):
        write_lines.lines(Update("7", node_list=node_list))


def test_each_error_message_is_attributed_to_the_write_that_caused_it() -> None:
    writes: list[Write] = [
        Update("1", priority=5),
        Unpin("2"),
        Requeue("3"),
        Update("4", priority=5),
    ]
    complaints = (
        "invalid keyword: M0\n"
        "Invalid job id specified for job 2\nslurm_suspend error: Invalid job id specified\n"
        "invalid keyword: M1\n"
        "invalid keyword: M2\n"
        "4_0,2-4: Job is no longer pending execution\n4_1,5-9: No error\n"
        "invalid keyword: M3\n"
    )
    answered, failures = write_lines.answers(writes, complaints, "M")
    assert answered == len(writes)
    assert [(failure.write.key, failure.message) for failure in failures] == [
        ("2", "Invalid job id specified for job 2; slurm_suspend error: Invalid job id specified"),
        ("4", "4_0,2-4: Job is no longer pending execution"),
    ]


def test_a_scontrol_that_stopped_early_is_detected() -> None:
    writes = [Update("1", priority=5), Update("2", priority=5)]
    assert write_lines.answers(writes, "invalid keyword: M0\n", "M") == (1, ())
    refused = WriteFailure(writes[0], "denied")
    assert write_lines.answers(writes, "denied\ninvalid keyword: M0\nno", "M") == (1, (refused,))
    assert write_lines.answers(writes, "", "M") == (0, ())


# --------------------------------------------------------------------------- garbage


@given(GARBAGE)
@example("²")
@example("gpu:" + "9" * 5000)
@example("n[1-99999999999]")
@example("n[")
def test_garbage_in_field_values_is_refused_without_a_crash(garbage: str) -> None:
    readers = (
        notation.gpus,
        notation.span,
        notation.mebibytes,
        notation.epoch,
        notation.known_epoch,
        notation.node_names,
    )
    for reader in readers:
        try:
            reader(garbage)
        except SlurmAnswerError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("settings", "private"),
    [
        (["none"], False),
        (["(null)"], False),
        (["cloud,events,nodes,partitions,reservations"], False),
        (["jobs"], True),
        (["accounts"], True),
        (["users"], True),
        (["usage"], True),
        (["events,usage"], True),
        (["none", "none"], False),
        (["none", "accounts,users"], True),
        (["accounts,cloud,events,jobs,nodes,partitions,reservations,usage,users"], True),
        (["Events,Job"], True),
        (["ALL"], True),
    ],
)
def test_private_data_of_either_file_hides_jobs(settings: list[str], private: bool) -> None:
    """As ``sacctmgr show configuration`` prints them, those of slurm.conf first."""
    lines = "\n".join(f"PrivateData            = {kinds}" for kinds in settings)
    assert parse_config.hides_jobs(f"TCPTimeout = 2 sec\n{lines}\nTrackWCKey = No\n") is private


@pytest.mark.parametrize(
    ("written", "private"),
    [("PrivateData=usage\n", True), ("#PrivateData=jobs\n", False), ("  privatedata = all", True)],
)
def test_from_26_05_on_slurmdbd_conf_is_read(tmp_path: Path, written: str, private: bool) -> None:
    (tmp_path / "slurmdbd.conf").write_text(f"DbdHost=localhost\n{written}")
    config = f"SLURM_CONF              = {tmp_path}/slurm.conf\n"
    assert commands._slurmdbd_conf_hides_jobs(config) is private
    assert not commands._slurmdbd_conf_hides_jobs("SLURM_CONF = /nonexistent/slurm.conf\n")


@given(GARBAGE)
def test_garbage_as_a_whole_answer_is_refused_without_a_crash(garbage: str) -> None:
    for reader in (
        lambda: tuple(job_rows.rows(garbage, SEPARATOR, OLDEST)),
        lambda: parse_nodes.nodes(f"NodeName={garbage}", parse_nodes.partitions(garbage), {}),
        lambda: parse_nodes.locations(f"SwitchName=a Level=0 {garbage}"),
        lambda: parse_nodes.partitions(f"PartitionName={garbage}"),
        lambda: parse_nodes.reservations(f"ReservationName={garbage}", []),
        lambda: parse_nodes.reservations(
            f"ReservationName=a StartTime=1 EndTime=2 Nodes={garbage} TRES=cpu={garbage}", []
        ),
        lambda: tuple(parse_accounting.runs(garbage, {"1"})),
        lambda: parse_config.cluster(garbage, 0.0),
    ):
        try:
            reader()
        except SlurmAnswerError as error:
            assert str(error)


@given(
    st.lists(
        st.sampled_from(["7", "n[1-2]", "gres:gpu:2", "RUNNING", "PENDING", "N/A", "1:00", ""])
        | GARBAGE,
        min_size=len(job_rows.FIELDS),
        max_size=len(job_rows.FIELDS),
    )
)
def test_garbage_rows_are_refused_without_a_crash(values: list[str]) -> None:
    answer = as_squeue_prints(values, SEPARATOR)
    memory = RowMemory()
    try:
        rows = tuple(job_rows.rows(answer, SEPARATOR, OLDEST))
        memory.unknown(rows)
        memory.learn(rows, {})
        memory.jobs(rows)
    except SlurmAnswerError as error:
        assert str(error)


@given(GARBAGE, st.integers(0, 10_000))
def test_garbage_in_scontrols_records_is_rejected(garbage: str, at: int) -> None:
    release = RELEASES[0]
    row = row_named(release, "spread over nodes")
    fields = parse_jobs.fields(row)
    record = records_of(release)[fields.raw_id]
    spoilt = record[: at % len(record)] + garbage + record[at % len(record) :]
    found = job_details.details(spoilt, fields)
    assert found is None or sum(held.gpu_count for held in found.allocation.values()) in (0, 3)
    job_details.records_of_all(garbage)


def as_squeue_prints(values: Sequence[str], separator: str) -> str:
    """Return these fields as squeue prints them, each followed by its separator."""
    told = job_rows.environment(map(str, range(len(values))), separator)["SQUEUE_FORMAT2"]
    ends = [column.partition(":")[2] for column in told.split(",")]
    return "".join(value + end for value, end in zip(values, ends, strict=True)) + "\n"


USER_FIELDS = JobRow._fields[JobRow._fields.index("user") : JobRow._fields.index("unreadable")]
WIDTH = len(job_rows.FIELDS)


def honest_row(job_id: int) -> JobRow:
    """A waiting job of user u, as 22.05 shows it."""
    row = next(row for row in rows_of(RELEASES[0]) if row.state == "PENDING" and "_" not in row.key)
    return row._replace(key=str(job_id), raw_id=str(job_id), user=f"u{job_id}")


def hostile_texts() -> st.SearchStrategy[str]:
    """Any text, with line breaks, control characters, other separators and whole forged rows."""
    known = job_rows.new_separator()
    forged = as_squeue_prints(honest_row(666)[:WIDTH], known)
    odd = st.sampled_from(["\n", "\x1e", "\x1d", "|", "9", "\n9", known, known[:-1], forged])
    return st.lists(odd | st.characters(codec="utf-8"), max_size=30).map("".join)


@given(hostile_texts(), st.sampled_from(USER_FIELDS), st.integers(0, 2))
def test_a_users_text_changes_only_its_own_field(text: str, field: str, place: int) -> None:
    separator = job_rows.new_separator()
    honest = [honest_row(job_id) for job_id in (1, 2, 3)]
    spoilt = [row._replace(**{field: text}) if n == place else row for n, row in enumerate(honest)]
    answer = "".join(as_squeue_prints(row[:WIDTH], separator) for row in spoilt)
    found = tuple(job_rows.rows(answer, separator, OLDEST))
    assert found == tuple(spoilt)
    assert [job.key for job in RowReader().read(found)] == ["1", "2", "3"]


@given(st.integers(0, 2), st.integers(1, WIDTH + 5))
def test_a_row_of_another_width_makes_only_its_own_job_unreadable(place: int, width: int) -> None:
    assume(width != WIDTH)
    honest = [honest_row(job_id) for job_id in (1, 2, 3)]
    rows = [list(row[:WIDTH]) for row in honest]
    rows[place] = [*rows[place], *["x"] * 5][:width]
    answer = "".join(as_squeue_prints(row, SEPARATOR) for row in rows)
    reader = RowReader()
    jobs = {job.key: job for job in reader.read(job_rows.rows(answer, SEPARATOR, OLDEST))}
    others = {row.key for n, row in enumerate(honest) if n != place}
    assert {key for key, job in jobs.items() if not job.unreadable} == others
    assert len(jobs) + reader.passed_over == len(honest)
    for key in jobs.keys() - others:
        assert f"its row has {width} fields" in jobs[key].unreadable


BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
BlockName=b3 BlockIndex=2 Nodes=n5 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=n[1-4] BlockSize=4
"""


def test_each_node_is_in_one_block_of_each_size() -> None:
    found = parse_nodes.locations(BLOCKS, "racks")
    assert [found[f"n{number}"].blocks for number in (1, 4, 5)] == [
        ((2, "racks/0"), (4, "racks/0")),
        ((2, "racks/1"), (4, "racks/0")),
        ((2, "racks/2"), (4, "racks/1")),
    ]


def test_nodes_are_in_the_topology_of_their_partition() -> None:
    lines = "".join(
        f"NodeName={name} State=IDLE CPUTot=1 RealMemory=1\n" for name in ("n1", "n2", "n3", "n4")
    )
    partitions = [
        Partition("a", frozenset({"n1", "n3"}), up=True, topology="racks"),
        Partition("b", frozenset({"n2", "n3"}), up=True),
    ]
    topologies = {
        "": parse_nodes.locations("SwitchName=s1 Level=0 Nodes=n[1-4]"),
        "racks": parse_nodes.locations(BLOCKS, "racks"),
    }
    nodes = parse_nodes.nodes(lines, partitions, topologies)
    assert [node.switch for node in nodes] == ["", "s1", "s1", "s1"]
    assert nodes[0].blocks
