"""Both drivers read the same fields of a job, and building an observed job parses no text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import ANY_TYPE, JobState
from slurm_tiresias.slurm import job_rows, notation, parse_jobs, pyslurm_records
from slurm_tiresias.slurm import release as releases
from slurm_tiresias.slurm.job_fields import JobFields
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.parse_jobs import RowReader
from slurm_tiresias.slurm.pyslurm_records import SeenJob

RECORDED = Path(__file__).parent / "slurm" / "recorded"
RELEASES = sorted(path.name for path in RECORDED.iterdir())
PACKAGE = Path(parse_jobs.__file__).parent


def rows_of(series: str) -> tuple[JobRow, ...]:
    answer = (RECORDED / series / "squeue.txt").read_bytes().decode()
    known = releases.of(releases.version_in(f"{series}.0"))
    return tuple(job_rows.rows(answer, "\x1erecorded\x1e", known))


def row_named(name: str, series: str = "26.05") -> JobRow:
    return next(row for row in rows_of(series) if row.name == name)


def as_pyslurm_sees(row: JobRow, **odd: Any) -> SeenJob:
    """The record of this row with pyslurm's names, as numbers."""
    _, in_array, task = row.key.partition("_")
    task, in_het, offset = task.partition("+") if in_array else row.key.partition("+")
    sums = dict(part.split("=") for part in row.tres.split(",")) if row.tres else {}
    gres = {name: int(count) for name, count in sums.items() if name.startswith("gres/")}
    limit_s = notation.span(row.time_limit)
    seen: dict[str, Any] = {
        **dict.fromkeys(SeenJob._fields),
        "id": int(row.raw_id),
        "array_id": int(row.array_id) if in_array else None,
        "array_task_id": int(task) if in_array else None,
        "heterogeneous_id": int(row.het_id) if in_het else None,
        "heterogeneous_offset": int(offset) if in_het else None,
        "state": row.state,
        "state_reason": row.reason,
        "priority": int(row.priority),
        "requeue_count": int(row.restarts),
        "is_batch_job": row.batch == "1",
        "is_requeueable": row.requeue == "1",
        **{name: _time(getattr(row, short)) for name, short in TIMES.items()},
        "run_time": int(notation.span(row.time_used) or 0),
        "time_limit": None if limit_s is None else int(limit_s) // 60,
        "num_nodes": int(row.nodes),
        "max_nodes": int(row.most_nodes) or None,
        "cpus": int(row.cpus),
        "min_cpus_per_node": int(row.cpus_per_node),
        "ntasks": int(row.tasks),
        "ntasks_per_node": int(row.tasks_per_node) if row.tasks_per_node.isdecimal() else None,
        "sockets_per_node": int(row.sockets) if row.sockets.isdecimal() else None,
        "memory_per_node": notation.mebibytes(row.memory) or None,
        "resource_sharing": row.over_subscribe,
        "required_nodes": row.required_nodes or None,
        "allocated_nodes": row.node_list or None,
        "account": notation.present(row.account) or None,
        "qos": row.qos,
        "partition": row.partitions,
        "reservation": notation.present(row.reservation) or None,
        "tres_nodes": int(sums["node"]) if "node" in sums else None,
        "tres_memory_mb": notation.mebibytes(sums["mem"]) if "mem" in sums else None,
        "tres_gres": {name.removeprefix("gres/"): count for name, count in gres.items()},
    }
    return SeenJob(**{**seen, **odd})


TIMES = {
    "submit_time": "submit",
    "eligible_time": "eligible",
    "start_time": "start",
    "end_time": "end",
}


def read_by_pyslurm(seen: SeenJob, row: JobRow) -> tuple[JobFields, ...]:
    return tuple(map(parse_jobs.fields, pyslurm_records.rows(seen, row)))


def _time(printed: str) -> int | None:
    return int(printed) if printed.isdecimal() else None


@pytest.mark.parametrize("series", RELEASES)
def test_pyslurms_numbers_and_squeues_text_become_the_same_fields(series: str) -> None:
    rows = rows_of(series)
    assert len(rows) > 30
    for row in rows:
        (found,) = read_by_pyslurm(as_pyslurm_sees(row), row)
        read = parse_jobs.fields(row)
        differing = {
            name: (getattr(found, name), getattr(read, name))
            for name in read._fields
            if getattr(found, name) != getattr(read, name)
        }
        assert not differing, row.key


def test_the_tasks_of_a_waiting_record_differ_in_their_keys_only() -> None:
    row = next(row for row in rows_of("26.05") if row.name == "array" and row.state == "PENDING")
    waiting = as_pyslurm_sees(row, array_task_id=None, array_tasks_waiting="1-5:2,7")
    found = read_by_pyslurm(waiting, row)
    array = row.array_id
    assert [job.key for job in found] == [f"{array}_{task}" for task in (1, 3, 5, 7)]
    assert len({job._replace(key="") == found[0]._replace(key="") for job in found}) == 1
    for odd in ("0-3,...", "5-3", "3-0:2"):
        with pytest.raises(SlurmAnswerError, match="a list of array tasks"):
            pyslurm_records.rows(waiting._replace(array_tasks_waiting=odd), row)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"state": "ENCHANTED"}, "a job state that cannot be parsed: 'ENCHANTED'"),
        ({"priority": None}, "a number that cannot be parsed: 'None'"),
        ({"submit_time": None}, "a time that cannot be parsed: 'None'"),
        ({"required_nodes": "n[1-"}, "a node list that cannot be parsed: 'n[1-'"),
        ({"allocated_nodes": "n[1-"}, "a node list"),
        ({"tres_gres": {"gpu": "h100:1.5"}}, "a GPU count that cannot be parsed: 'gpu=h100:1.5'"),
        ({"tres_gres": {"gpu:-2": 1}}, "a GPU count"),
        ({"tres_gres": {"gpu": 2**63}}, "a GPU count"),
    ],
)
def test_an_invalid_pyslurm_record_is_unreadable(odd: dict[str, Any], why: str) -> None:
    row = row_named("spread over nodes")
    seen = as_pyslurm_sees(row, **odd)
    (found,) = read_by_pyslurm(seen, row)
    assert why in found.unreadable
    assert found.raw_id == int(row.raw_id)


def test_an_unreadable_field_of_squeue_makes_pyslurms_job_unreadable() -> None:
    row = row_named("spread over nodes")._replace(tres_per_node="gres:gpu:x:-2")
    (found,) = read_by_pyslurm(as_pyslurm_sees(row), row)
    assert "a GPU count" in found.unreadable
    assert found.state is JobState.RUNNING


def test_a_total_beside_counts_by_type_is_not_counted_again() -> None:
    row = row_named("spread over nodes")
    seen = as_pyslurm_sees(row, tres_gres={"gpu": 4, "gpu:a100": 3, "gpumem": 7})
    (found,) = read_by_pyslurm(seen, row)
    assert found.tres_gpus == {"a100": 3, ANY_TYPE: 1}
    assert parse_jobs.fields(row._replace(tres="gres/gpu=4,gres/gpu:a100=3")).tres_gpus == {
        "a100": 3,
        ANY_TYPE: 1,
    }


def test_an_unchanged_row_is_not_parsed_again() -> None:
    rows = rows_of("26.05")
    changed = rows[3]._replace(priority="7")
    reader = RowReader()
    before = reader.read(rows)
    after = reader.read([changed if row is rows[3] else row for row in rows])
    assert [one is other for one, other in zip(before, after, strict=True)] == [
        row is not rows[3] for row in rows
    ]
    assert after[3].priority == 7


def test_a_sum_of_memory_that_overflowed_matters_only_where_it_is_needed() -> None:
    row = row_named("spread over nodes")
    found = parse_jobs.fields(row._replace(tres=row.tres.replace("mem=", "mem=?")))
    assert found.unreadable == ""
    assert "an amount of memory" in found.unreadable_sum
    assert found.tres_gpus == parse_jobs.fields(row).tres_gpus


@pytest.mark.parametrize("module", ["job_fields", "observed_jobs", "job_memory", "request"])
def test_modules_that_build_jobs_do_not_parse_text(module: str) -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text()))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }
    assert not imported & {"text", "parse_jobs", "job_rows", "JobRow", "re"}


@pytest.mark.parametrize(
    ("field", "printed", "option"),
    [
        ("tres_per_node", "gres:gpu:1,gres:nvme:1", "--gres of another kind than gpu"),
        ("tres_per_node", "gres/gpu:1,gres/shard:2", "--gres of another kind than gpu"),
        ("tres_per_job", "gres:gpu:a100:1,gres:gpu:v100:1", "--gpus of several types"),
        ("over_subscribe", "USER", "--exclusive=user"),
        ("contiguous", "1", "--contiguous"),
        ("burst_buffer", "capacity=1", "--bb"),
    ],
)
def test_options_unknown_to_placement_are_named(field: str, printed: str, option: str) -> None:
    assert parse_jobs.not_modelled(
        row_named("two GPUs on a node")._replace(**{field: printed})
    ) == (option,)


@pytest.mark.parametrize(
    ("field", "printed"),
    [
        ("tres_per_node", "gres:gpu:a100:2,gres:gpu:v100:1"),
        ("tres_per_task", "cpu:4,gres/gpu:1"),
        ("tres_per_job", "gres:gpu:a100:4"),
        ("over_subscribe", "NO"),
        ("disk", "0"),
        ("threads_per_core", "*"),
        ("network", "(null)"),
    ],
)
def test_options_known_to_placement_are_not_named(field: str, printed: str) -> None:
    assert (
        parse_jobs.not_modelled(row_named("two GPUs on a node")._replace(**{field: printed})) == ()
    )


def test_oversubscription_settings_read_alike_on_every_release() -> None:
    old, new = releases.of((22, 5, 0)), releases.of((26, 5, 0))
    assert [old.sharing(word) for word in ("NO", "OK", "YES", "USER")] == ["NO", "OK", "OK", "USER"]
    assert [new.sharing(word) for word in ("NODE", "NO", "USER")] == ["NO", "OK", "USER"]
