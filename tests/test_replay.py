"""The paper's jobs on a real Slurm: the jobs, the requests of each policy, the tables, a short
form."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import pytest

from scripts.testbed.real_cluster import COMPLETED, REQUEUED, short_folder
from scripts.tools.bench.replay import calibrate, cluster, course
from scripts.tools.bench.replay.calibrate import Calibration
from scripts.tools.bench.replay.course import Options
from scripts.tools.bench.replay.figures import Compared, compared, foreseen, of_the_real
from scripts.tools.bench.replay.jobs import (
    SLEEPER,
    Ran,
    Submitted,
    faults_of,
    in_minutes,
    ran,
    read_journal,
)
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.report import body, limits, ratio, verdicts
from scripts.tools.bench.replay.store import Head, JobRuns, Replayed, Store
from slurm_tiresias.simulator.limits import USERS
from slurm_tiresias.simulator.workload import TraceJob, paper480
from slurm_tiresias.slurm.protocol import AccountedRun

OPTIONS = Options(into=Path("/nowhere"), jobs=12, seed=3, nodes=4, factor=400.0)
MEASURED = Calibration(
    idle_start_s=0.3,
    idle_starts=8,
    preempting_start_s=0.8,
    vacating_s=0.03,
    restart_s=2.07,
    preemptions=8,
)
SETTING = OPTIONS.setting(30.0)
HEAD = Head(SETTING, MEASURED, factor_chosen=True)


def job(gpus: int) -> TraceJob:
    return TraceJob("a", 0.0, gpus, 60.0, limit_s=86400 / 30)


# ---------------------------------------------------------------- what jobs and clusters are asked


@pytest.mark.parametrize(
    ("gpus", "nodes", "each"), [(1, 1, 1), (2, 1, 2), (4, 1, 4), (8, 2, 4), (32, 8, 4)]
)
def test_a_job_under_yarn_requests_the_fewest_nodes(gpus: int, nodes: int, each: int) -> None:
    asked = POLICIES["yarn-cs"].asking(SETTING)(job(gpus))
    assert {f"--nodes={nodes}", f"--gpus-per-node={each}"} <= set(asked)


def test_under_yarn_a_width_that_does_not_divide_evenly_is_refused() -> None:
    with pytest.raises(click.UsageError, match="evenly"):
        POLICIES["yarn-cs"].asking(SETTING)(job(5))


@pytest.mark.parametrize("name", ["slurm", "tiresias-l", "tiresias-g"])
def test_under_other_policies_a_job_may_use_any_nodes(name: str) -> None:
    asked = POLICIES[name].asking(SETTING)(job(8))
    assert set(asked) == {"--gpus=8", "--ntasks=8", "--time=48"}


@pytest.mark.parametrize(("factor", "minutes"), [(4, 360), (30, 48), (60, 24), (400, 4)])
def test_a_time_limit_is_a_day_made_shorter_in_whole_minutes(factor: float, minutes: int) -> None:
    setting = OPTIONS.setting(factor)
    assert {in_minutes(job.limit_s or 0.0) for job in setting.workload().jobs} == {minutes}
    assert f"a time limit of {minutes} minutes" in limits(setting)


def test_users_ask_for_limits_that_their_jobs_never_exceed() -> None:
    jobs = replace(SETTING, limits=USERS).workload().jobs
    assert all(job.duration_s <= (job.limit_s or 0.0) for job in jobs)
    assert len({job.limit_s for job in jobs}) > 3


def test_only_strict_fifo_runs_without_backfill() -> None:
    for name, policy in POLICIES.items():
        lines = policy.slurm_conf()
        assert ("SchedulerType=sched/backfill" in lines) == (name != "yarn-cs")
        assert sum(line.startswith("SchedulerParameters=") for line in lines) == 1


def test_with_a_controller_slurm_has_the_settings_of_the_example() -> None:
    lines = POLICIES["tiresias-l"].slurm_conf()
    assert {"JobRequeue=1", "PreemptMode=OFF", "AccountingStorageTRES=gres/gpu"} <= set(lines)
    (parameters,) = (line for line in lines if line.startswith("SchedulerParameters="))
    assert "disable_job_shrink" in parameters


def test_the_hooks_are_those_of_etc_with_adapted_paths(tmp_path: Path) -> None:
    cluster.hooks(tmp_path, SETTING)
    lua = (tmp_path / "job_submit.lua").read_text()
    assert f'local nudge_file = "{tmp_path}/nudge"' in lua
    assert "local first_look_s = 3\n" in lua


def test_setting_an_unknown_variable_of_the_script_is_an_error() -> None:
    with pytest.raises(click.ClickException, match="no setting speed"):
        cluster.with_local("local first_look_s = 15\n", "speed", "1")


# ---------------------------------------------------------------- the factor, and the folder


def test_the_factor_makes_a_preemption_weigh_what_it_did_in_the_paper() -> None:
    assert course.factor_for(MEASURED) == 30.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.keep_head(HEAD)
    return made


def test_stored_results_are_read_back(store: Store) -> None:
    ran = Replayed("slurm", "a machine", 60.0, (JobRuns("0", 0.0, ((1.0, 2.0),)),), ("a fault",))
    store.keep(ran)
    assert store.head() == HEAD
    assert store.all() == {"slurm": ran}


def test_policies_that_have_run_are_not_run_again_unless_named(store: Store) -> None:
    store.keep(Replayed("slurm", "", 60.0, ()))
    assert course.to_run(OPTIONS, store) == [name for name in POLICIES if name != "slurm"]
    assert course.to_run(replace(OPTIONS, policies=("slurm",)), store) == ("slurm",)


@pytest.mark.parametrize(
    "other",
    [{"jobs": 13}, {"seed": 2}, {"nodes": 9}, {"gpus": 8}, {"factor": 31.0}, {"limits": USERS}],
)
def test_a_folder_holds_one_replay(other: dict[str, Any]) -> None:
    course.check_same(replace(OPTIONS, factor=30.0), HEAD)
    course.check_same(replace(OPTIONS, factor=None), HEAD)
    with pytest.raises(click.UsageError, match="--into"):
        course.check_same(replace(OPTIONS, **{"factor": 30.0, **other}), HEAD)


def test_a_replay_cannot_be_reported_before_its_first_run(tmp_path: Path) -> None:
    options = replace(OPTIONS, into=tmp_path / "none", report_only=True)
    with pytest.raises(click.UsageError, match="--report"):
        course.measure(options)


# ---------------------------------------------------------------- the job


def start(journal: Path, work_s: float, load_s: float = 0.0) -> subprocess.Popen[bytes]:
    micros = (str(round(seconds * 1e6)) for seconds in (work_s, load_s))
    return subprocess.Popen([str(SLEEPER), str(journal), *micros])


def stop_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def test_a_sleeper_works_for_the_requested_time(tmp_path: Path) -> None:
    assert start(tmp_path / "j", 0.5).wait() == 0
    first, last = read_journal(tmp_path / "j")
    assert (first.what, first.done_s, last.what) == ("started", 0.0, "ended")
    assert 0.5 <= last.done_s <= last.at_s - first.at_s


def test_a_stopped_sleeper_loads_and_resumes_where_it_was(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    stop_after(start(journal, 1.0), 0.5)
    began_s = time.monotonic()
    assert start(journal, 1.0, load_s=0.5).wait() == 0
    assert time.monotonic() - began_s >= 0.5 + 0.3
    entries = read_journal(journal)
    assert [entry.what for entry in entries] == ["started", "stopped", "started", "ended"]
    assert entries[1].done_s == entries[2].done_s > 0.1
    assert entries[3].done_s >= 1.0
    assert faults_of(submitted(journal, 1.0), rows(entries[3].at_s, REQUEUED, COMPLETED)) == []


def test_a_sleeper_that_is_stopped_while_it_loads_has_done_nothing(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    stop_after(start(journal, 60.0), 0.5)
    done_s = read_journal(journal)[-1].done_s
    stop_after(start(journal, 60.0, load_s=60.0), 0.5)
    assert read_journal(journal)[-1].done_s == done_s


# ---------------------------------------------------------------- what the journals say


def submitted(journal: Path, work_s: float) -> Submitted:
    return Submitted(TraceJob("a", 0.0, 1, work_s), "7", 0.0, journal)


def rows(end_s: float, *states: str) -> list[AccountedRun]:
    return [
        AccountedRun("7", number, int(end_s), 1, 1, state, submit_s=number)
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("lines", "states", "fault"),
    [
        (["started 0 0", "ended 1000000 900000"], [COMPLETED], "did 0.900 s of its 1.000 s"),
        (
            ["started 0 0", "stopped 5 5", "started 9 2", "ended 1000000 1000000"],
            [REQUEUED, COMPLETED],
            "went on from 0.000 s",
        ),
        (["started 0 0", "ended 1000000 1000000"], ["FAILED"], "FAILED"),
        (["started 0 0", "ended 1000000 1000000"], [REQUEUED, COMPLETED], "ran 1 times"),
        (["started 0 0", "ended 9000000 1000000"], [COMPLETED], "its end is 8.0 s from"),
    ],
)
def test_a_job_that_ran_wrongly_is_reported_as_a_fault(
    tmp_path: Path, lines: Sequence[str], states: Sequence[str], fault: str
) -> None:
    journal = tmp_path / "j"
    journal.write_text("".join(f"{line}\n" for line in lines))
    (found,) = faults_of(submitted(journal, 1.0), rows(1.0, *states))
    assert fault in found


def test_a_run_without_a_last_journal_line_counts(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    journal.write_text("started 1000000 0\nstarted 5000000 0\nended 6000000 1000000\n")
    told = ran(submitted(journal, 1.0))
    assert told.runs == ((1.0, 1.0), (5.0, 6.0))
    assert (told.preemptions, told.jct_s) == (1, 6.0)


# ---------------------------------------------------------------- the workload, and the calibration


def test_both_sides_have_the_same_jobs_made_shorter_and_one_configuration() -> None:
    jobs = SETTING.workload().jobs
    for job, whole in zip(jobs, paper480(3).jobs, strict=False):
        assert (job.gpus, job.model) == (whole.gpus, whole.model)
        assert job.duration_s * 30 == pytest.approx(whole.duration_s)
        assert job.submitted_s * 30 == pytest.approx(whole.submitted_s)
    assert len(jobs) == 12
    config = SETTING.config
    assert config.policy.thresholds_gpu_s == (3200 / 30,)
    assert config.preemption.min_run_s == 4.0
    timing = SETTING.timing(MEASURED)
    assert timing.interval_s == config.controller.interval_s
    assert timing.requeue_delay_s == pytest.approx(1.57)
    assert timing.preempting_delay_s == MEASURED.preempting_start_s - timing.interval_s / 2


def test_the_first_job_comes_at_evenly_spread_moments_of_the_interval() -> None:
    phases = [workload.jobs for workload in SETTING.phases()]
    firsts_s = [jobs[0].submitted_s for jobs in phases]
    assert firsts_s == pytest.approx([(n + 0.5) / 20 for n in range(20)])
    for jobs in phases:
        assert jobs[5].submitted_s - jobs[0].submitted_s == pytest.approx(
            SETTING.workload().jobs[5].submitted_s
        )


def test_jobs_wider_than_the_cluster_are_refused() -> None:
    with pytest.raises(click.UsageError, match="--nodes"):
        replace(SETTING, nodes=1).workload()


def test_the_calibration_measures_starts_and_restarts() -> None:
    def told(name: str, submitted_s: float, *runs: tuple[float, float]) -> Ran:
        return Ran(TraceJob(name, 0.0, 4, 1.0), submitted_s, runs)

    seen = [told("idle0", 0.0, (0.2, 0.7)), told("idle1", 2.0, (2.4, 2.9))]
    for number in range(4):
        at_s = 100.0 + 10.0 * number
        seen.append(told(f"preemptor{number}", at_s, (at_s + 1.0, at_s + 1.5)))
        back = (at_s + 3.9, 200.0)
        seen.append(told(f"filling{number}", 50.0, (51.0, at_s + 0.9), back))
    found = asdict(calibrate.measured(seen))
    assert found == pytest.approx(
        {
            "idle_start_s": 0.3,
            "idle_starts": 2,
            "preempting_start_s": 1.0,
            "vacating_s": 0.1,
            "restart_s": 3.0,
            "preemptions": 4,
        }
    )


def test_a_calibration_without_preemptions_is_refused() -> None:
    job = calibrate.workload(nodes=2, gpus=4, threshold_gpu_s=40.0, seed=1)[0]
    with pytest.raises(click.ClickException, match="too few"):
        calibrate.measured([Ran(job, 0.0, ((1.0, 2.0),))])


# ---------------------------------------------------------------- the figures and the tables


def test_journal_times_are_scaled_to_full_length() -> None:
    told = [
        Ran(job(1), 100.0, ((101.0, 103.0), (105.0, 106.0))),
        Ran(job(1), 110.0, ((111.0, 112.0),)),
    ]
    first, second = cluster.as_slow_as_in_the_paper(told, 30.0)
    assert first == JobRuns("a", 0.0, ((30.0, 90.0), (150.0, 180.0)))
    assert second.submitted_s == 300.0


def test_waiting_is_all_time_without_gpus() -> None:
    ran = [JobRuns("0", 0.0, ((30.0, 90.0), (150.0, 180.0)))]
    found = of_the_real(SETTING, ran)
    assert found["average_jct_s"] == found["makespan_s"] == 180.0
    assert found["average_wait_s"] == 90.0
    assert found["preemptions"] == 1


def as_foreseen(head: Head, slower: float = 1.0) -> Compared:
    """Runs as simulated, or all slower by the same factor."""
    them = compared(head, POLICIES, {})
    real = {
        name: {measure: value * slower for measure, value in told.items()}
        for name, told in them.foreseen.items()
    }
    return replace(them, real=real)


def test_simulated_times_of_short_jobs_are_scaled_to_full_length() -> None:
    head = replace(HEAD, setting=replace(SETTING, jobs=40, seed=1, nodes=15))
    slow = foreseen(head, "yarn-cs")
    slower = foreseen(replace(head, setting=replace(head.setting, factor=5.0)), "yarn-cs")
    assert slower["average_jct_s"] == pytest.approx(slow["average_jct_s"], rel=0.05)
    assert slower["LL"] == pytest.approx(slow["LL"], rel=0.05)


def test_the_tables_set_the_real_beside_the_simulated_and_the_paper() -> None:
    them = as_foreseen(HEAD, slower=1.25)
    runs = {
        "yarn-cs": Replayed("yarn-cs", "a machine", 60.0, ()),
        "slurm": Replayed("slurm", "a machine", 60.0, (), ("a fault",)),
    }
    text = body(them, runs)
    assert "| slurm, real |" in text
    assert "| yarn-cs, the paper's testbed |" in text
    assert "| yarn-cs | median | " in text and " | 27.00 |" in text
    assert text.count(" | -20.0% |") == len(POLICIES) * 4
    assert "simulated -20.0% off the real, NOT WITHIN 5%" in text
    assert "FAULT under slurm: a fault." in text
    assert "weighs 62 s" in text


def test_a_policy_that_has_not_run_leaves_a_gap() -> None:
    them = replace(as_foreseen(HEAD), real={})
    assert ratio(them.real, "yarn-cs", "median_jct_s") is None
    assert list(verdicts(them)) == []
    assert "| tiresias-l, simulated |" in body(them, {})


# ---------------------------------------------------------------- on a real Slurm


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as one:
        yield one


@pytest.mark.slurm
@pytest.mark.parametrize("policy", ["yarn-cs", pytest.param("tiresias-l", marks=pytest.mark.long)])
def test_a_short_replay_runs(folder: Path, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    options = replace(OPTIONS, into=folder / "results", policies=(policy,))
    assert course.measure(options, known=MEASURED) == 0
    (told,) = Store(options.into).all().values()
    assert told.faults == ()
    assert len(told.jobs) == options.jobs
    assert f"| {policy}, real |" in capsys.readouterr().out
