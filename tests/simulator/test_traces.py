"""The loaders: a few lines of each format, and the resulting jobs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator.traces import FORMATS, load_trace, reading, sacct, sniff
from slurm_tiresias.simulator.workload import TraceJob, Workload
from slurm_tiresias.slurm.job_fields import STATES


def load(folder: Path, text: str) -> Workload:
    """Load the text as a trace whose format must be detected."""
    path = folder / "trace"
    path.write_text(text)
    return load_trace(path)


def dropped(workload: Workload) -> dict[int, str]:
    return {each.line: each.why for each in workload.dropped}


# --------------------------------------------------------------------------- tables

GENERIC = """\
job_id,submit_time_s,num_gpus,duration_s,model,gpu_type,user,name,group,limit_s,account
a,100,4,60,vgg16,a100,eva,first,vc1,3600,lab
b,90.5,1.0,30,,,,,,,
"""


def test_a_table_becomes_jobs_by_submission_on_the_clock_of_the_first(tmp_path: Path) -> None:
    workload = load(tmp_path, GENERIC)
    assert workload.format == "csv"
    assert workload.jobs == (
        TraceJob("b", 0.0, 1, 30.0),
        TraceJob("a", 9.5, 4, 60.0, "vgg16", "a100", "eva", "first", "vc1", 3600.0, "lab"),
    )


def test_a_workload_says_that_it_was_put_in_order_and_from_which_bytes(tmp_path: Path) -> None:
    workload = load(tmp_path, GENERIC)
    assert workload.notes == ("put in order: 1 jobs came before the job on the line above",)
    assert workload.sha256 == hashlib.sha256(GENERIC.encode()).hexdigest()


def test_columns_may_come_in_any_order_case_and_line_ending(tmp_path: Path) -> None:
    text = "\ufeffDuration, Num_GPU ,user,Submit_Time,job_id\r\n\r\n60,2,eva,0,x\r\n"
    assert load(tmp_path, text).jobs == (TraceJob("x", 0.0, 2, 60.0, user="eva"),)


def test_a_column_that_is_not_read_is_named(tmp_path: Path) -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s,modle\nx,0,1,5,vgg16\n"
    assert load(tmp_path, text).notes == ("columns not read: 'modle'",)


def test_jobs_that_ran_for_no_time_or_are_absurdly_wide_are_dropped(tmp_path: Path) -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s\na,0,1,0\nb,1,1000000000,5\nc,2,1,5\n"
    workload = load(tmp_path, text)
    assert [job.job_id for job in workload.jobs] == ["c"]
    assert dropped(workload) == {2: "ran for no time", 3: "asks for more than 1,000,000 GPUs"}


def test_a_job_wider_than_most_clusters_is_left_to_the_simulator(tmp_path: Path) -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s\na,0,99999,5\n"
    assert load(tmp_path, text).jobs[0].gpus == 99999


def test_philly_has_its_virtual_clusters_as_groups(tmp_path: Path) -> None:
    text = "job_id,submit_time_s,num_gpus,duration_s,model,vc\np-1,0,8,22,,7f04ca\n"
    workload = load(tmp_path, text)
    assert workload.format == "philly"
    assert workload.jobs == (TraceJob("p-1", 0.0, 8, 22.0, group="7f04ca"),)


def test_philly_with_dates_and_without_ids_is_numbered_by_its_lines(tmp_path: Path) -> None:
    workload = load(
        tmp_path,
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n",
    )
    assert (workload.format, workload.notes[1:]) == ("philly", ())
    assert workload.jobs == (
        TraceJob("line3", 0.0, 2, 2951.0, group="6214e9"),
        TraceJob("line2", 2932.0, 1, 66.0, group="11cb48"),
    )


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("job_id,submit_time_s,num_gpus,duration_s,model,cluster\nx,0,4,3890,,c07\n", "c07"),
        ("job_id,submission_time,duration,num_gpu\nx,16566,3890,4\n", ""),
        (
            "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
            "x,16566,40285,,21347,64,4,3890\n",
            "",
        ),
    ],
)
def test_itp_is_read_as_published_and_in_one_file(tmp_path: Path, text: str, group: str) -> None:
    workload = load(tmp_path, text)
    assert (workload.format, workload.notes) == ("itp", ())
    assert workload.jobs == (TraceJob("x", 0.0, 4, 3890.0, group=group),)


def test_helios_drops_its_cpu_jobs_and_keeps_those_that_failed(tmp_path: Path) -> None:
    day = "2020-06-09"
    workload = load(
        tmp_path,
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,"
        "submit_time,start_time,end_time,duration,queue\n"
        f"11,u1,vcA,1,1,1,COMPLETED,{day} 18:41:01,{day} 18:41:01,2020-06-10 04:55:09,36848,0\n"
        f"12,u2,vcB,4,16,1,FAILED,{day} 18:41:27,{day} 18:41:27,{day} 18:45:36,249,0\n"
        f"13,u2,vcB,0,16,1,COMPLETED,{day} 18:41:28,{day} 18:41:28,{day} 18:45:36,9,0\n",
    )
    assert (workload.format, workload.notes) == ("helios", ())
    assert workload.jobs == (
        TraceJob("11", 0.0, 1, 36848.0, user="u1", group="vcA"),
        TraceJob("12", 26.0, 4, 249.0, user="u2", group="vcB"),
    )
    assert dropped(workload) == {4: "asks for no GPU"}


# --------------------------------------------------------------------------- Alibaba

TASKS = """\
one,ps,1.0,Terminated,900.0,1500.0,600.0,29.3,,
one,worker,3.0,Terminated,1000.0,1500.0,600.0,29.3,50.0,T4
one,evaluator,1.0,Terminated,1100.0,1700.0,600.0,29.3,200.0,T4
cpu,ps,1.0,Terminated,1000.0,1500.0,600.0,29.3,0.0,CPU
late,worker,1.0,Running,1000.0,,600.0,29.3,100.0,V100
never,worker,1.0,Waiting,,,600.0,29.3,100.0,V100
wrong,worker,1.0,Failed,1000.0,900.0,600.0,29.3,100.0,V100
vague,worker,,Failed,1000.0,1900.0,600.0,29.3,100.0,V100
"""


def test_an_alibaba_2020_job_is_all_its_tasks_with_gpus_in_whole_gpus(tmp_path: Path) -> None:
    workload = load(tmp_path, TASKS)
    assert workload.format == "alibaba2020"
    assert workload.jobs == (TraceJob("one", 0.0, 5, 700.0, gpu_type="T4"),)
    assert dropped(workload) == {
        4: "asks for no GPU",
        5: "was not over when the trace ended",
        6: "never ran",
        7: "ends before it starts",
        8: "does not say how many instances it has",
    }
    assert workload.notes == (
        "1 jobs asked for parts of GPUs and were given whole ones",
        "jobs count as submitted when they started: there is no job table",
    )


def test_alibaba_2020_with_its_job_table_has_submissions_and_users(tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text(
        TASKS + "two,worker,1.0,Terminated,1000.0,1001.0,600.0,29.3,100.0,V100\n"
    )
    (tmp_path / "pai_job_table.csv").write_text(
        "one,i1,eva,Terminated,400.0,1500.0\ntwo,i2,tom,Terminated,,\n"
    )
    workload = load_trace(tmp_path)
    assert workload.jobs == (
        TraceJob("one", 0.0, 5, 700.0, gpu_type="T4", user="eva"),
        TraceJob("two", 600.0, 1, 1.0, gpu_type="V100", user="tom"),
    )


def test_alibaba_2023_gives_whole_gpus_and_takes_choices_of_type_for_any(tmp_path: Path) -> None:
    workload = load(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,460,,LS,Running,427061,427161,427071\n"
        "p1,12000,24576,8,1000,G2,Burstable,Succeeded,427062,427072,427062\n"
        "p2,16000,32768,1,1000,V100M16|V100M32,LS,Failed,427063,427073,427063\n"
        "p3,20000,65536,0,0,,LS,Running,427064,427074,427064\n"
        "p4,20000,65536,1,1000,,BE,Pending,427064,427074,\n",
    )
    assert workload.format == "alibaba2023"
    assert workload.jobs == (
        TraceJob("p0", 0.0, 1, 90.0, group="LS"),
        TraceJob("p1", 1.0, 8, 10.0, gpu_type="G2", group="Burstable"),
        TraceJob("p2", 2.0, 1, 10.0, group="LS"),
    )
    assert dropped(workload) == {5: "asks for no GPU", 6: "never ran"}
    assert len(workload.notes) == 2


# --------------------------------------------------------------------------- SWF

SWF = """\
; Version: 2.2
;  MaxProcs: 64

  1  100 10  60  16 -1 -1  16  120 -1 1  3 1 -1 2 -1 -1 -1
  2  130  0  60  -1 -1 -1   9   -1 -1 0 -1 1 -1 2 -1 -1 -1
  3  140 -1  -1   4 -1 -1   4   -1 -1 5  4 1 -1 2 -1 -1 -1
  4  150  0  10   4 -1 -1   4   -1 -1 2  4 1 -1 2 -1 -1 -1
  4  150  0  20   4 -1 -1   4   -1 -1 1  4 1 -1 2 -1 -1 -1
  5  160  0  20  -1 -1 -1  -1   -1 -1 1  4 1 -1 2 -1 -1 -1
"""


def test_swf_takes_processors_for_gpus_and_counts_checkpointed_jobs_once(tmp_path: Path) -> None:
    workload = load(tmp_path, SWF)
    assert workload.format == "swf"
    assert workload.jobs == (
        TraceJob("1", 0.0, 16, 60.0, user="3", group="2", limit_s=120.0),
        TraceJob("2", 30.0, 9, 60.0, group="2"),
        TraceJob("4", 50.0, 4, 20.0, user="4", group="2"),
    )
    assert dropped(workload) == {
        6: "does not say when it was submitted or how long it ran",
        7: "is one stretch of a job that has a line for the whole of it",
        9: "does not say how many processors it had",
    }


# --------------------------------------------------------------------------- Slurm's history

HEADER = "|".join([*sacct.COLUMNS, "JobName"]) + "\n"
RECORDED = Path(__file__).parent / "recorded"


def row(
    job_id: str = "1",
    submit: str = "1000",
    ran: str = "60",
    state: str = "COMPLETED",
    *,
    end: str = "2000",
    suspended: str = "00:00:00",
    alloc: str = "billing=4,cpu=4,gres/gpu=2,mem=4G,node=1",
    req: str = "cpu=4,gres/gpu=2",
    limit: str = "60",
    partition: str = "gpu",
    user: str = "eva",
    account: str = "lab",
    name: str = "train",
) -> str:
    fields = (job_id, submit, "1000", end, ran, suspended, state, alloc, req)
    return "|".join((*fields, limit, partition, user, account, name)) + "\n"


def test_a_slurm_job_has_its_gpus_limit_partition_user_account_and_name(tmp_path: Path) -> None:
    workload = load(tmp_path, HEADER + row())
    assert workload.format == "sacct"
    assert workload.jobs == (
        TraceJob(
            *("1", 0.0, 2, 60.0),
            user="eva",
            name="train",
            group="gpu",
            limit_s=3600.0,
            account="lab",
        ),
    )


def test_all_runs_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    history = (
        row("7", "1000", "100", "PREEMPTED", end="1150")
        + row("7", "1150", "0", "NODE_FAIL", end="1200", alloc="")
        + row("7", "1200", "50", "REQUEUED", end="1260")
        + row("7", "1260", "25", "COMPLETED", end="1300")
        + row("8", "1100", "10")
    )
    jobs = load(tmp_path, HEADER + history).jobs
    assert [(job.job_id, job.submitted_s, job.duration_s) for job in jobs] == [
        ("7", 0.0, 175.0),
        ("8", 100.0, 10.0),
    ]


def test_a_job_that_is_not_over_is_dropped_with_all_its_runs(tmp_path: Path) -> None:
    history = (
        row("7", "1000", "100", "PREEMPTED", end="1150")
        + row("7", "1150", "50", "RUNNING", end="Unknown")
        + row("8_[0-9%2]", "1000", "0", "PENDING", end="Unknown", alloc="")
        + row("9", "1000", "0", "CANCELLED by 1000", alloc="")
        + row("10", "1000", "9", "CANCELLED by 1000")
    )
    workload = load(tmp_path, HEADER + history)
    assert [job.job_id for job in workload.jobs] == ["10"]
    not_over = "was not over when the trace ended"
    assert dropped(workload) == {2: not_over, 3: not_over, 4: not_over, 5: "ran for no time"}


@pytest.mark.parametrize("state", sorted(STATES.keys() - sacct.ALIVE))
def test_a_job_that_ran_counts_however_it_ended(tmp_path: Path, state: str) -> None:
    assert load(tmp_path, HEADER + row(state=state)).jobs[0].duration_s == 60


@pytest.mark.parametrize("state", sorted(sacct.ALIVE))
def test_a_job_in_any_other_state_is_not_counted(tmp_path: Path, state: str) -> None:
    workload = load(tmp_path, HEADER + row("2") + row("1", state=state))
    assert [job.job_id for job in workload.jobs] == ["2"]


@pytest.mark.parametrize(
    ("alloc", "gpus", "kind"),
    [
        ("cpu=4,gres/gpu:a100=4,gres/gpu=4", 4, "a100"),
        ("cpu=4,gres/gpu:a100=1,gres/gpu:v100=2,gres/gpu=3", 3, ""),
        ("cpu=4,gres/gpu=8,gres/gpumem=80G", 8, ""),
        ("", 2, ""),
    ],
)
def test_typed_gpus_are_counted_once_and_what_was_asked_stands_in_for_what_was_held(
    tmp_path: Path, alloc: str, gpus: int, kind: str
) -> None:
    job = load(tmp_path, HEADER + row(alloc=alloc)).jobs[0]
    assert (job.gpus, job.gpu_type) == (gpus, kind)


def test_tasks_of_an_array_are_jobs_and_steps_and_cpu_jobs_are_not(tmp_path: Path) -> None:
    history = (
        row("5_0")
        + row("5_1")
        + row("5_1.batch")
        + row("6+0")
        + row("7", alloc="cpu=4,mem=4G", req="cpu=4")
        + row("5_0")
    )
    workload = load(tmp_path, HEADER + history)
    assert [job.job_id for job in workload.jobs] == ["5_0", "5_1"]
    assert dropped(workload) == {
        4: "is a step of a job",
        5: "is a part of a heterogeneous job",
        6: "asks for no GPU",
        7: "is the same run again",
    }


def test_a_reused_id_is_another_job(tmp_path: Path) -> None:
    month_s = 30 * 86400
    history = row("1", "1000", "60", end="2000") + row("1", str(1000 + month_s), "70")
    by_another = row("2", "1000", "60", end="2000") + row("2", "3000", "70", user="tom")
    requeued_by_hand = row("3", "1000", "60", "FAILED", end="2000") + row("3", "2100", "70")
    jobs = load(tmp_path, HEADER + history + by_another + requeued_by_hand).jobs
    assert {job.job_id: job.duration_s for job in jobs} == {
        "1": 60.0,
        "1#2": 70.0,
        "2": 60.0,
        "2#2": 70.0,
        "3": 130.0,
    }


def test_a_job_name_may_hold_the_separator_and_bytes_of_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes((HEADER + row(name="a|b|caf")).encode().rstrip() + b"\xe9\n")
    assert load_trace(path).jobs[0].name == "a|b|caf\ufffd"


def test_without_elapsed_the_suspended_time_is_taken_off(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|End|Suspended|State|ReqTRES|Timelimit\n"
        "1|2024-01-31T23:00:00|2024-01-31T23:00:10|2024-02-01T00:00:10|00:10:00|TIMEOUT|gres/gpu=1|01:00:00\n"
    )
    assert load(tmp_path, text).jobs == (TraceJob("1", 0.0, 1, 3000.0, limit_s=3600.0),)


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_a_job_may_have_no_time_limit(tmp_path: Path, limit: str) -> None:
    assert load(tmp_path, HEADER + row(limit=limit)).jobs[0].limit_s is None


def test_the_export_command_asks_for_the_columns_that_the_loader_reads() -> None:
    assert sacct.EXPORT_COMMAND.startswith("TZ=UTC0 SLURM_TIME_FORMAT=%s sacct --allusers ")
    assert sacct.arguments("2024-05-01")[-2] == "--starttime=2024-05-01"
    assert "JobName" not in sacct.COLUMNS


@pytest.mark.parametrize("name", ["sacct-22.05.txt", "sacct-22.05-with-names.txt"])
def test_output_of_a_real_slurm_is_parsed(name: str) -> None:
    workload = load_trace(RECORDED / name)
    assert [(job.job_id, job.submitted_s, job.gpus, job.duration_s) for job in workload.jobs] == [
        ("1", 0.0, 1, 3.0 + 4.0),  # requeued once
        ("2", 3.0, 1, 3.0),  # eight seconds, five of them suspended
        ("4", 4.0, 2, 1.0),  # its name has line breaks
        ("3_0", 4.0, 1, 1.0),
        ("3_1", 4.0, 1, 1.0),
    ]
    told = set(dropped(workload).values())
    assert told >= {"asks for no GPU", "was not over when the trace ended"}
    printed = reading.as_trace(Path("sacct"), (RECORDED / name).read_bytes(), "replace")
    assert sacct.history(printed).jobs == workload.jobs


# --------------------------------------------------------------------------- the choice


def test_a_trace_format_can_be_named_if_detection_would_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("job_id,submit_time_s,num_gpus,duration_s,vc\nx,0,1,5,a\n")
    assert sniff(path) == "philly"
    assert load_trace(path, "csv").format == "csv"


def test_a_format_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load_trace(tmp_path / "x", "pbs")
    assert all(name in str(refused.value) for name in FORMATS)
