"""Every check both ways: it finds the problem and the line to write, and passes without the
problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller.bands import TOP_TIER
from slurm_tiresias.doctor.checks import CHECKS
from slurm_tiresias.doctor.diagnosis import Diagnosis, diagnose
from slurm_tiresias.doctor.finding import Finding, Severity
from slurm_tiresias.doctor.look import slowest_save
from slurm_tiresias.doctor.run_folder import RunFolder
from slurm_tiresias.doctor.seen import Controller, Place, Seen, SpankPlugin
from slurm_tiresias.model import Amount, Node
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.pinned import PinnedJob
from slurm_tiresias.slurm.survey import Settings, SurveyedPartition
from tests.cli.states import progress, running
from tests.doctor.pictures import (
    OPTIONAL,
    RELEASES,
    STATE_DIR,
    lower,
    partition,
    sound,
    with_config,
    with_settings,
    with_values,
)

OK, NOTE, WARNING, ERROR = Severity
PARAMETERS = "bf_interval=2,disable_job_shrink,batch_sched_delay=1,requeue_delay=1"
MENDED = f"SchedulerParameters={PARAMETERS}"
REQUIRED = replace(OPTIONAL, demand="required")
UNSEEN = (
    *("running", "written", "partitions", "nodes", "known_jobs", "pinned", "plugstack"),
    *("clock_ahead_s", "controller", "state_dir", "job_submit", "spank", "run_folder"),
)
EMPTY = Node("n1", Amount({}, 16, 8000))


@dataclass(frozen=True)
class Case:
    """A change to a cluster without problems, the finding, and a line that must be among those to
    write."""

    check: str
    change: Callable[[Seen], Seen]
    severity: Severity
    line: str = ""


def settings(**changes: str) -> Callable[[Seen], Seen]:
    return lambda seen: with_settings(seen, **changes)


def parameters(text: str) -> Callable[[Seen], Seen]:
    return settings(SchedulerParameters=text)


def config(**tables: Mapping[str, Any]) -> Callable[[Seen], Seen]:
    return lambda seen: with_config(seen, **tables)


def seen_as(**fields: Any) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, **fields)


def on(*release: int) -> Callable[[Seen], Seen]:
    return seen_as(release=release)


def also(word: str) -> Callable[[Seen], Seen]:
    return parameters(f"{word},{PARAMETERS}")


def among(*partitions: SurveyedPartition) -> Callable[[Seen], Seen]:
    return seen_as(partitions=partitions)


def run_by(user: str, uid: int | None, **more: str) -> Callable[[Seen], Seen]:
    return seen_as(controller_user=user, controller_user_id=uid, **more)


def state_file(name: str, mode: int) -> Callable[[Seen], Seen]:
    return seen_as(state_files=(Place(f"{STATE_DIR}/{name}", 7, "slurm", mode),))


def both(*changes: Callable[[Seen], Seen]) -> Callable[[Seen], Seen]:
    def all_of_them(seen: Seen) -> Seen:
        for change in changes:
            seen = change(seen)
        return seen

    return all_of_them


def saves_in(seconds: float) -> Callable[[Seen], Seen]:
    """A job reports that a step and a save take this long."""
    return seen_as(controller=Controller("enforce", "", 1.0, False, (), (seconds, "7")))


SITE_FACTOR = config(priority={"write": "site-factor"})
HIDDEN = seen_as(partitions=(partition(nodes=frozenset({"n1", "cloud1"})),))
CGROUP = settings(ProctrackType="proctrack/cgroup")

CASES = (
    Case("slurmctld", seen_as(running=None), ERROR),
    Case("release", seen_as(release=None), NOTE),
    Case("release", on(21, 8, 8), ERROR),
    Case("release", on(23, 2, 7), NOTE),
    Case("running-as-written", seen_as(written=Settings({"killwait": "77"})), WARNING),
    Case("running-as-written", seen_as(written=Settings({"killwait": "30"})), OK),
    Case("running-as-written", seen_as(written=Settings({"preemptmode": "off"})), OK),
    Case("config", seen_as(config_there=False), NOTE),
    Case("config", seen_as(config_error="x.toml is not valid TOML"), ERROR),
    Case("partitions", among(partition("a")), ERROR, 'partitions = ["a"]'),
    Case(
        "partitions",
        seen_as(partitions=(partition("a"),), config_there=False),
        NOTE,
        'partitions = ["a"]',
    ),
    Case("gpus", seen_as(nodes=(EMPTY,)), ERROR, "GresTypes=gpu"),
    Case(
        "gpus",
        lambda seen: replace(
            seen,
            nodes=(*(seen.nodes or ()), replace(EMPTY, name="n2")),
            partitions=(partition(nodes=frozenset({"n1", "n2"})),),
        ),
        NOTE,
    ),
    Case(
        "cloud-nodes",
        both(settings(PrivateData="usage"), HIDDEN, on(22, 5, 8)),
        WARNING,
        "PrivateData=usage,cloud",
    ),
    Case("cloud-nodes", both(settings(PrivateData="cloud"), HIDDEN, on(22, 5, 8)), OK),
    Case("higher-partitions", among(partition(), partition("urgent", priority_tier=9)), NOTE),
    Case(
        "higher-partitions",
        lambda seen: replace(
            seen,
            partitions=(partition(), partition("urgent", priority_tier=9)),
            config=parse({"manage": {"partitions": ["gpu", "urgent"]}}),
        ),
        NOTE,
    ),
    Case(
        "higher-partitions",
        among(partition(), partition("urgent", priority_tier=9, nodes=frozenset({"n7"}))),
        OK,
    ),
    Case("clock", seen_as(clock_ahead_s=-61.0), WARNING),
    Case("clock", seen_as(clock_ahead_s=61.0), WARNING),
    Case(
        "preempt-mode",
        settings(PreemptMode="REQUEUE", PreemptType="preempt/qos"),
        WARNING,
        "PreemptType=preempt/none",
    ),
    Case("preempt-mode", settings(PreemptMode="GANG,SUSPEND"), WARNING, "PreemptMode=OFF"),
    Case("job-requeue", settings(JobRequeue="0"), WARNING, "JobRequeue=1"),
    Case(
        "requeue-delay",
        both(on(25, 11, 2), parameters("disable_job_shrink,batch_sched_delay=1")),
        NOTE,
        "SchedulerParameters=disable_job_shrink,batch_sched_delay=1,requeue_delay=1",
    ),
    Case("requeue-delay", on(25, 11, 2), OK),
    Case("requeue-delay", both(on(24, 11, 5), settings(AuthInfo="socket=/x,cred_expire=5")), NOTE),
    Case("kill-wait", settings(KillWait="5 sec"), WARNING, "KillWait=30"),
    Case("kill-wait", settings(KillWait="3600 sec"), NOTE, "KillWait=30"),
    Case("kill-wait", both(settings(KillWait="45 sec"), saves_in(50.2)), WARNING, "KillWait=51"),
    Case("kill-wait", both(settings(KillWait="60 sec"), saves_in(50.2)), OK),
    Case("kill-wait", both(settings(KillWait="5 sec"), saves_in(2.0)), WARNING, "KillWait=30"),
    Case(
        "kill-wait",
        both(settings(KillWait="5 sec"), config(preemption={"checkpoint": "USR1@60"})),
        OK,
    ),
    Case("sigterm-reach", both(CGROUP, on(24, 11, 5)), WARNING, "SignalChildrenProcesses=yes"),
    Case("sigterm-reach", both(CGROUP, on(22, 5, 8)), NOTE),
    Case(
        "sigterm-reach", both(CGROUP, on(22, 5, 8), config(preemption={"checkpoint": "USR1@0"})), OK
    ),
    Case(
        "sigterm-reach",
        both(CGROUP, seen_as(cgroup=Settings({"signalchildrenprocesses": "yes"}))),
        OK,
    ),
    Case("job-file-append", settings(JobFileAppend="0"), WARNING, "JobFileAppend=1"),
    Case(
        "job-shrink",
        parameters("batch_sched_delay=1"),
        WARNING,
        "SchedulerParameters=batch_sched_delay=1,disable_job_shrink",
    ),
    Case("complete-wait", settings(CompleteWait="32 sec"), NOTE, "CompleteWait=0"),
    Case(
        "priority-type",
        settings(PriorityType="priority/basic"),
        WARNING,
        "PriorityType=priority/multifactor",
    ),
    Case(
        "priority-type",
        both(settings(PriorityType="priority/basic"), SITE_FACTOR),
        ERROR,
        "PriorityType=priority/multifactor",
    ),
    Case("priority-weights", settings(PriorityWeightAge="2000000000"), WARNING),
    Case("priority-weights", settings(PriorityWeightAge="300000000"), OK),
    Case("priority-weights", settings(PriorityWeightTRES="CPU=10,GRES/gpu=2000000000"), WARNING),
    Case("priority-weights", both(settings(PriorityWeightAge="300000000"), SITE_FACTOR), WARNING),
    Case("select-type", settings(SelectType="select/linear"), ERROR, "SelectType=select/cons_tres"),
    Case("least-loaded", settings(SelectTypeParameters="CR_CORE_MEMORY,CR_LLN"), NOTE),
    Case("least-loaded", among(partition(least_loaded=True)), NOTE),
    Case("prompt-limit", among(partition(limits_time=False)), NOTE),
    Case(
        "prompt-limit",
        both(
            among(partition(limits_time=False)),
            lambda seen: replace(
                seen, job_submit=f"local prompt_limit_min = 240\n{seen.job_submit}"
            ),
        ),
        OK,
    ),
    Case(
        "scheduler-type",
        settings(SchedulerType="sched/builtin"),
        WARNING,
        "SchedulerType=sched/backfill",
    ),
    Case(
        "batch-sched-delay",
        parameters("batch_sched_delay=20,disable_job_shrink,requeue_delay=1"),
        NOTE,
        "SchedulerParameters=disable_job_shrink,requeue_delay=1,batch_sched_delay=1",
    ),
    Case("batch-sched-delay", parameters("disable_job_shrink,requeue_delay=1"), NOTE),
    Case("defer", also("defer"), NOTE, MENDED),
    Case("sched-min-interval", also("sched_min_interval=5000000"), NOTE, MENDED),
    Case("sched-min-interval", also("sched_min_interval=1000"), OK),
    Case("bf-continue", both(on(26, 5, 2), also("bf_continue")), WARNING, MENDED),
    Case("bf-continue", both(on(26, 5, 3), also("bf_continue")), OK),
    Case("bf-min-prio-reserve", also("bf_min_prio_reserve=3500000000"), NOTE, MENDED),
    Case("bf-min-age-reserve", also("bf_min_age_reserve=600"), NOTE, MENDED),
    Case("max-job-count", seen_as(known_jobs=9_500), WARNING, "MaxJobCount=20000"),
    Case("min-job-age", settings(MinJobAge="10 sec"), WARNING, "MinJobAge=300"),
    Case("min-job-age", config(controller={"interval_s": 600}), WARNING, "MinJobAge=3600"),
    Case("default-memory", settings(DefMemPerCPU="UNLIMITED"), WARNING, "DefMemPerCPU=500"),
    Case("default-memory", settings(DefMemPerCPU="UNLIMITED", JobDefaults="DefMemPerGPU=4000"), OK),
    Case(
        "accounting",
        settings(AccountingStorageType="accounting_storage/none"),
        WARNING,
        "AccountingStorageType=accounting_storage/slurmdbd",
    ),
    Case(
        "accounting-tres",
        settings(AccountingStorageTRES="cpu,mem,energy,node,billing,fs/lustre"),
        WARNING,
        "AccountingStorageTRES=fs/lustre,gres/gpu",
    ),
    Case("job-submit", settings(JobSubmitPlugins="(null)"), NOTE, "JobSubmitPlugins=lua"),
    Case("job-submit", seen_as(job_submit="function slurm_job_submit() end"), NOTE),
    Case("job-submit", seen_as(job_submit=None), NOTE),
    Case("job-submit", seen_as(job_submit="tiresias_job_submit()"), NOTE),
    Case(
        "job-submit",
        config(manage={"partitions": ["gpu", "big"]}),
        WARNING,
        'local partitions = { "gpu", "big" }',
    ),
    Case("job-submit", config(controller={"mode": "shadow"}), WARNING, 'local write = "nothing"'),
    Case("job-submit", SITE_FACTOR, WARNING, 'local write = "site-factor"'),
    Case("other-writers", settings(JobSubmitPlugins="lua,fair_boost"), WARNING),
    Case("job-submit", settings(JobSubmitPlugins="job_submit/lua"), OK),
    Case("other-writers", settings(JobSubmitPlugins="job_submit/lua"), OK),
    Case("other-writers", seen_as(job_submit="job_desc.priority = 7"), WARNING),
    Case("other-writers", seen_as(job_submit="-- job_desc.priority = 7"), OK),
    Case("other-writers", seen_as(job_submit="if job_desc.priority == 7 then end"), OK),
    Case(
        "other-writers",
        both(SITE_FACTOR, settings(PrioritySiteFactorPlugin="site_factor/mine")),
        WARNING,
    ),
    Case(
        "other-writers", seen_as(controller=Controller("enforce", "", 1.0, False, ("7",))), WARNING
    ),
    Case("other-writers", seen_as(pinned=(PinnedJob("7", "gpu", 77),)), WARNING),
    Case("other-writers", seen_as(pinned=(PinnedJob("7", "cpu", 77),)), OK),
    Case("other-writers", seen_as(pinned=(PinnedJob("7", "gpu", TOP_TIER),)), OK),
    Case("other-writers", seen_as(pinned=None), OK),
    Case(
        "all-partitions",
        settings(JobSubmitPlugins="lua,all_partitions"),
        WARNING,
        "JobSubmitPlugins=lua",
    ),
    Case("plugstack", seen_as(spank=None, plugstack=()), NOTE, f"optional {OPTIONAL.path}"),
    Case(
        "plugstack",
        lambda seen: replace(seen, spank=SpankPlugin(REQUIRED, seen.release)),
        ERROR,
        f"optional {OPTIONAL.path}",
    ),
    Case("spank-build", seen_as(spank=SpankPlugin(OPTIONAL, (20, 11, 4))), ERROR),
    Case("spank-build", seen_as(spank=SpankPlugin(OPTIONAL, None)), ERROR),
    Case("spank-build", seen_as(spank=SpankPlugin(OPTIONAL, None, "No such file")), NOTE),
    Case("run-folder", seen_as(run_folder=RunFolder("/run/x", False, None)), WARNING),
    Case("run-folder", seen_as(run_folder=RunFolder("/run/x", True, None)), WARNING),
    Case("rights", run_by("ann", 1001), ERROR, "User=slurm"),
    Case("rights", run_by("ann", 1001, admin_level="Operator"), OK),
    Case("rights", run_by("root", 0), OK),
    Case("rights", both(run_by("", None), settings(SlurmUser="hpc(77)")), NOTE, "User=hpc"),
    Case(
        "rate-limit",
        both(
            settings(SlurmctldParameters="rl_enable,rl_bucket_size=9"),
            seen_as(release=(24, 11, 5), controller_user="ann", controller_user_id=1001),
        ),
        WARNING,
        "User=slurm",
    ),
    Case("rate-limit", both(settings(SlurmctldParameters="rl_enable"), on(24, 11, 5)), OK),
    Case("state-dir", seen_as(state_dir=Place(STATE_DIR, 7, "slurm", 0o775)), ERROR),
    Case("state-dir", seen_as(state_dir=None, state_files=()), OK),
    Case("state-dir", state_file("ledger-3.sqlite", 0o644), ERROR),
    Case("state-dir", state_file("state.json", 0o666), ERROR),
    Case("state-dir", state_file("tiresias.sock", 0o666), OK),
    Case("slurm-state", settings(StateSaveLocation=STATE_DIR), ERROR, f'state_dir = "{STATE_DIR}"'),
    Case("controller", seen_as(controller=None), NOTE),
    Case("controller", seen_as(controller=Controller("stopped", "", 9.0, False, ())), NOTE),
    Case("controller", seen_as(controller=Controller("enforce", "", 900.0, True, ())), ERROR),
    Case(
        "nudge-file",
        config(controller={"standby": True, "nudge_file": f"{STATE_DIR}/nudge"}),
        ERROR,
        'nudge_file = "/run/slurm-tiresias-controller/nudge"',
    ),
    Case("nudge-file", config(controller={"nudge_file": f"{STATE_DIR}/nudge"}), OK),
    Case("nudge-file", config(controller={"nudge_file": ""}), OK),
    Case(
        "epilog-nudge",
        settings(EpilogSlurmctld="(null)"),
        NOTE,
        "EpilogSlurmctld=/etc/slurm-tiresias/nudge",
    ),
)


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    return next(each for each in diagnosis.findings if each.name == name)


def lines_for(diagnosis: Diagnosis, name: str) -> list[str]:
    return [line.line for line in diagnosis.lines_of(finding(diagnosis, name))]


@pytest.mark.parametrize("release", RELEASES)
def test_a_well_configured_cluster_has_no_findings(release: str) -> None:
    diagnosis = diagnose(sound(release))
    wrong = [each for each in diagnosis.findings if each.severity is not OK]
    assert wrong == []
    assert diagnosis.unchecked == ()
    assert diagnosis.lines == {}
    assert diagnosis.worst is OK


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.severity.value}")
def test_each_check_finds_its_problem(case: Case) -> None:
    diagnosis = diagnose(case.change(sound()))
    found = finding(diagnosis, case.check)
    assert found.severity is case.severity, found
    if case.line:
        assert case.line in lines_for(diagnosis, case.check)
    if case.severity is OK:
        assert not found.mends and not found.do


def test_every_check_has_a_failing_and_a_passing_case() -> None:
    names = {check.name for check in CHECKS}
    assert len(names) == len(CHECKS)
    assert {case.check for case in CASES if case.severity is not OK} == names
    content = {f.name for f in diagnose(sound()).findings if f.severity is OK}
    assert content | {case.check for case in CASES if case.severity is OK} == names


def test_every_finding_has_a_problem_a_reason_and_a_remedy() -> None:
    for case in CASES:
        found = finding(diagnose(case.change(sound())), case.check)
        assert found.why.endswith(".") and (
            found.why[0].isupper() or found.why.startswith(("slurmctld ", "slurmctld's "))
        )
        assert found.seen and not found.seen.endswith("."), found
        if found.severity is WARNING:
            assert found.mends or found.do, found


def test_all_changes_of_one_list_are_merged_into_one_line() -> None:
    seen = with_settings(sound(), SchedulerParameters="bf_continue,defer,bf_window=99")
    diagnosis = diagnose(seen)
    line = "SchedulerParameters=bf_window=99,disable_job_shrink,batch_sched_delay=1"
    for name in ("job-shrink", "batch-sched-delay", "bf-continue", "defer"):
        assert lines_for(diagnosis, name) == [line]
    assert [each.line for each in diagnosis.lines.values()] == [line]


def test_a_suggested_line_says_which_line_it_replaces() -> None:
    diagnosis = diagnose(with_settings(sound(), KillWait="5", JobRequeue="0"))
    (kept,), (new,) = (
        diagnosis.lines_of(finding(diagnosis, name)) for name in ("kill-wait", "job-requeue")
    )
    assert (kept.file, kept.place) == ("/etc/slurm/slurm.conf", "instead of line 7")
    assert new.place == ""


def test_a_line_to_replace_is_shown_with_the_included_file_that_has_it() -> None:
    seen = replace(sound(), places={"killwait": "line 7 of /etc/slurm/site.conf"})
    diagnosis = diagnose(with_settings(seen, KillWait="5"))
    (line,) = diagnosis.lines_of(finding(diagnosis, "kill-wait"))
    assert line.place == "instead of line 7 of /etc/slurm/site.conf"


def test_checks_without_their_settings_are_named_as_unchecked() -> None:
    nothing = replace(sound(), **dict.fromkeys(UNSEEN))  # type: ignore[arg-type]
    diagnosis = diagnose(nothing)
    assert {each.name for each in diagnosis.findings} == {
        *("slurmctld", "release", "config", "state-dir", "nudge-file", "controller")
    }
    assert {f.name for f in diagnosis.findings} | set(diagnosis.unchecked) == {
        check.name for check in CHECKS
    }


@pytest.mark.parametrize("release", RELEASES)
def test_slurm_conf_alone_is_checked_with_slurms_defaults(release: str) -> None:
    bare = with_values(sound(release), lower({"ClusterName": "c", "KillWait": "10"}))
    diagnosis = diagnose(replace(bare, running=None, cgroup=None))
    assert finding(diagnosis, "kill-wait").severity is WARNING
    assert finding(diagnosis, "job-requeue").severity is OK
    assert finding(diagnosis, "job-file-append").severity is WARNING
    assert "select-type" not in {each.name for each in diagnosis.findings}


def test_a_hostile_partition_name_cannot_break_a_suggested_line() -> None:
    seen = replace(sound(), partitions=(partition('a"\n[controller]\nmode="x'),))
    (line,) = lines_for(diagnose(seen), "partitions")
    assert "\n" not in line


@pytest.mark.parametrize("path", ["/run/slurm-tiresias", "/run/x"])
def test_a_run_folder_without_its_own_tmpfs_is_reported_with_the_fstab_line(path: str) -> None:
    seen = replace(sound(), run_folder=RunFolder(path, False, None))
    *before, table, mount = finding(diagnose(seen), "run-folder").do
    options = "size=32m,nr_inodes=300,mode=0755,nodev,nosuid,noexec"
    assert table == f"echo 'tmpfs {path} tmpfs {options} 0 0' >> /etc/fstab"
    assert mount == f"mount {path}"
    assert [line.split("    #")[0] for line in before] == (
        [r"systemctl enable --now 'run-slurm\x2dtiresias.mount'"] if "slurm" in path else []
    )


@pytest.mark.parametrize(
    ("admin_level", "mends", "do"),
    [
        ("None", [], ["sacctmgr modify user ann set AdminLevel=Operator"]),
        ("", ["slurm"], []),
        (None, ["slurm"], []),
    ],
)
def test_missing_rights_have_one_suggested_remedy(
    admin_level: str | None, mends: list[str], do: list[str]
) -> None:
    """A user known to accounting is made operator; otherwise the service runs as SlurmUser."""
    stranger = replace(sound(), controller_user="ann", controller_user_id=1001)
    found = finding(diagnose(replace(stranger, admin_level=admin_level)), "rights")
    assert found.severity is ERROR
    assert [mend.value for mend in found.mends] == mends and list(found.do) == do


def test_a_host_without_the_run_folder_is_not_checked_for_it() -> None:
    names = {each.name for each in diagnose(replace(sound(), run_folder=None)).findings}
    assert "run-folder" not in names


def test_jobs_pinned_by_other_writers_are_named_with_the_remedy() -> None:
    pinned = tuple(PinnedJob(str(number), "gpu", 77) for number in range(10, 20))
    found = finding(diagnose(replace(sound(), pinned=(*pinned, pinned[0]))), "other-writers")
    assert found.seen == (
        "something else has pinned the priority of jobs 10, 11, 12, 13, 14, 15, 16, 17 and 2 more, "
        "which wait"
    )
    ids = "10 11 12 13 14 15 16 17"
    assert found.do[0].startswith(f"scontrol hold {ids}; scontrol release {ids}    #")


def test_jobs_whose_priority_others_have_changed_are_named() -> None:
    changed = Controller("enforce", "", 1.0, False, ("7", "9"))
    found = finding(diagnose(replace(sound(), controller=changed)), "other-writers")
    assert found.seen == "others have changed the priority of jobs 7, 9 lately"


def test_a_plugin_line_of_another_plugin_is_not_ours() -> None:
    other = PlugstackLine("required", "/usr/lib/x/pyxis.so", "/e/plug", 1)
    seen = replace(sound(), plugstack=(other,), spank=None)
    assert finding(diagnose(seen), "plugstack").severity is NOTE


def test_a_save_comes_after_the_longest_step() -> None:
    jobs = (
        running("6", progress=progress(9, step_s=30.0, save_takes_s=5.0)),
        running("7", progress=progress(9, save_takes_s=20.0, longest_step_s=31.0)),
        running("8", progress=progress(9, step_s=900.0)),
        running("9"),
    )
    assert slowest_save(jobs) == (51.0, "7")
