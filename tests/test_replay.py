"""The paper's jobs on a real Slurm: the requests of each policy's jobs, the tables, a short
form."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.place import DemoError, Place, UsageError
from scripts.testbed.real_cluster import short_folder
from scripts.tools.bench.replay import cluster, course
from scripts.tools.bench.replay.course import Options
from scripts.tools.bench.replay.figures import Compared, compared, foreseen, of_the_real
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.report import Goal, body, limits, ratio, verdicts
from scripts.tools.bench.replay.store import Head, JobRuns, Replayed, Store
from scripts.tools.fidelity.calibrate import Calibration
from scripts.tools.fidelity.jobs import Ran
from scripts.tools.fidelity.limits import USERS, in_minutes, with_limits
from slurm_tiresias.simulator.workload import TraceJob, paper480

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
def test_under_yarn_a_job_requests_the_fewest_nodes_that_fit(
    gpus: int, nodes: int, each: int
) -> None:
    asked = POLICIES["yarn-cs"].asking(SETTING)(job(gpus))
    assert {f"--nodes={nodes}", f"--gpus-per-node={each}"} <= set(asked)


def test_under_yarn_a_width_that_does_not_divide_evenly_is_refused() -> None:
    with pytest.raises(UsageError, match="evenly"):
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


def test_users_ask_for_usual_limits_that_their_jobs_never_exceed() -> None:
    limited = with_limits(paper480(2), USERS, 2)
    assert limited == with_limits(paper480(2), USERS, 2)
    hours = [(job.limit_s or 0.0) / 3600 for job in limited.jobs]
    assert all(job.duration_s <= (job.limit_s or 0.0) for job in limited.jobs)
    assert set(hours) <= {0.25, 0.5, 1, 2, 4, 8, 12, 24}
    assert 0.2 < hours.count(24) / len(hours) < 0.3
    assert len(set(hours)) >= 6


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
    cluster.hooks(Place(tmp_path), SETTING)
    lua = (tmp_path / "job_submit.lua").read_text()
    assert f'local nudge_file = "{tmp_path}/state/nudge"' in lua
    assert "local first_look_s = 3\n" in lua


def test_setting_an_unknown_variable_of_the_script_is_an_error() -> None:
    with pytest.raises(DemoError, match="no setting speed"):
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
    with pytest.raises(UsageError, match="--into"):
        course.check_same(replace(OPTIONS, **{"factor": 30.0, **other}), HEAD)


def test_a_replay_cannot_be_reported_before_its_first_run(tmp_path: Path) -> None:
    options = replace(OPTIONS, into=tmp_path / "none", report_only=True)
    with pytest.raises(UsageError, match="--report"):
        course.measure(options, Place(tmp_path / "c"))


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


def test_stock_slurm_alone_is_reported_next_to_its_simulation() -> None:
    head = replace(HEAD, setting=replace(SETTING, limits=USERS))
    alone = compared(head, ["slurm"], {})
    real = {name: value * 1.03 for name, value in alone.foreseen["slurm"].items()}
    runs = {"slurm": Replayed("slurm", "a machine", 60.0, ())}
    text = body(replace(alone, real={"slurm": real}), runs)
    assert "simulated -2.9% off the real, within 5%." in text
    assert f" | {alone.full_length['average_jct_s']:,.0f} |" in text
    assert "a quarter of the jobs with a time limit of a day" in text
    assert course.command(head.setting, runs).endswith("--limits users --policy slurm")


def test_a_policy_that_has_not_run_leaves_a_gap() -> None:
    them = replace(as_foreseen(HEAD), real={})
    assert ratio(them.real, "yarn-cs", "median_jct_s") is None
    assert list(verdicts(them)) == []
    assert "Not all policies have run." in body(them, {})


@pytest.mark.parametrize(
    ("ideal", "wanted"), [(5.6, 5.5), (5.0, 4.75)], ids=["possible", "impossible"]
)
def test_the_goal_is_the_papers_where_that_is_possible(ideal: float, wanted: float) -> None:
    goal = Goal("average_jct_s", wanted, ideal)
    assert goal.wanted == pytest.approx(wanted)
    assert goal.is_met
    assert not replace(goal, reached=wanted - 0.01).is_met


# ---------------------------------------------------------------- on a real Slurm


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as one:
        yield one


@pytest.mark.slurm
@pytest.mark.parametrize("policy", ["yarn-cs", pytest.param("tiresias-l", marks=pytest.mark.long)])
def test_a_short_replay_runs_and_is_reported(
    folder: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    options = replace(OPTIONS, into=folder / "results", policies=(policy,))
    assert course.measure(options, Place(folder / "c"), known=MEASURED) == 0
    (ran,) = Store(options.into).all().values()
    assert ran.faults == ()
    assert len(ran.jobs) == options.jobs
    assert f"| {policy}, real |" in capsys.readouterr().out
    assert not (folder / "c").exists()
