"""The comparison of simulator and real Slurm: its parts, and a short form of it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts import ROOT
from scripts.testbed.jobs import COMPLETED, REQUEUED, AccountedRun
from scripts.testbed.place import DemoError, Place, UsageError
from scripts.testbed.real_cluster import short_folder
from scripts.tools.bench.replay.cluster import SAVING
from scripts.tools.demo.main import STOPPING_SIGNALS
from scripts.tools.fidelity import calibrate, compare, main, report
from scripts.tools.fidelity.calibrate import Calibration
from scripts.tools.fidelity.compare import Ended, Figure
from scripts.tools.fidelity.jobs import SLEEPER, Ran, Submitted, faults_of, ran, read_journal
from scripts.tools.fidelity.report import BEGIN, END, Result
from scripts.tools.fidelity.setting import Setting
from slurm_tiresias.simulator.workload import TraceJob, paper480

SETTING = Setting(jobs=12, seed=1, nodes=8, gpus=4, factor=60.0, order="first-start")
MEASURED = Calibration(
    idle_start_s=0.3,
    idle_starts=8,
    preempting_start_s=0.8,
    vacating_s=0.03,
    restart_s=3.0,
    preemptions=8,
)

MACHINE = report.machine("slurm 22.05.8")


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    """The command line installs its own signal handlers."""
    before = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def test_a_job_that_saves_periodically_resumes_from_its_last_save(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    command = [str(SAVING), str(ROOT), "300000", str(journal), "1500000", "100000"]
    first = subprocess.Popen(command)
    assert first.poll() is None
    while not any(entry.what == "saved" for entry in read_journal(journal)):
        time.sleep(0.01)
    stop_after(first, 0.1)
    assert subprocess.run(command, check=False).returncode == 0
    entries = read_journal(journal)
    stopped = next(n for n, entry in enumerate(entries) if entry.what == "stopped")
    saved, stop, restart = entries[stopped - 1 : stopped + 2]
    assert (saved.what, restart.what) == ("saved", "started")
    assert restart.done_s == saved.done_s < stop.done_s
    job = submitted(journal, 1.5)
    assert ran(job).again_s == stop.done_s - saved.done_s
    accounted = rows(entries[-1].at_s, REQUEUED, COMPLETED)
    assert faults_of(job, accounted, saves_when_stopped=False) == []
    (fault,) = faults_of(job, accounted)
    assert "went on from" in fault


# ---------------------------------------------------------------- what the journals say


def submitted(journal: Path, work_s: float) -> Submitted:
    return Submitted(TraceJob("a", 0.0, 1, work_s), "7", 0.0, journal)


def rows(end_s: float, *states: str) -> list[AccountedRun]:
    return [
        AccountedRun("7", state, submitted_s=number, elapsed_s=1, ended_s=int(end_s))
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


# ---------------------------------------------------------------- what both sides are given


def test_both_sides_have_the_same_jobs_made_shorter_and_one_configuration() -> None:
    jobs = SETTING.workload().jobs
    for job, whole in zip(jobs, paper480(1).jobs, strict=False):
        assert (job.gpus, job.model) == (whole.gpus, whole.model)
        assert job.duration_s * 60 == pytest.approx(whole.duration_s)
        assert job.submitted_s * 60 == pytest.approx(whole.submitted_s)
    assert len(jobs) == 12
    config = SETTING.config()
    assert config.policy.thresholds_gpu_s == (60.0,)
    assert config.preemption.min_run_s == 2.0
    timing = SETTING.timing(MEASURED)
    assert timing.interval_s == config.controller.interval_s
    assert timing.requeue_delay_s == 2.5
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
    with pytest.raises(UsageError, match="--nodes"):
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
    with pytest.raises(DemoError, match="too few"):
        calibrate.measured([Ran(job, 0.0, ((1.0, 2.0),))])


# ---------------------------------------------------------------- the comparison


def ended(jct_s: float, end_s: float, gpus: int = 1, duration_s: float = 1.0) -> Ended:
    return Ended(TraceJob(f"{jct_s}", 0.0, gpus, duration_s), jct_s, end_s, preemptions=1)


def test_a_figure_outside_its_band_does_not_hold() -> None:
    assert Figure("", "s", 100.0, (100.0, 110.0), 0.05).holds
    assert not Figure("", "s", 100.0, (105.1,), 0.05).holds
    assert not Figure("", "s", 100.0, (94.9,), 0.05).holds
    assert not Figure("", "s", 0.0, (1.0,), 0.05).holds
    assert Figure("", "", 0.0, (1.0,)).holds


def test_the_figures_are_those_of_both_sides() -> None:
    real = [ended(10.0, 20.0), ended(20.0, 40.0, gpus=8, duration_s=20.0)]
    simulated = [replace(one, jct_s=one.jct_s * 1.1) for one in real]
    found = {figure.name: figure for figure in compare.figures(real, [simulated], factor=60.0)}
    assert found["average JCT"].real == 15.0
    assert found["average JCT"].off == pytest.approx(0.1)
    assert found["average JCT, short, small (1 jobs)"].simulated == pytest.approx(11.0)
    assert found["average JCT, long, wide (1 jobs)"].real == 20.0
    assert found["makespan"].off == 0.0
    assert found["preemptions"].real == 2.0


def test_a_fault_or_a_figure_outside_its_band_is_a_failure() -> None:
    real = (ended(10.0, 20.0),)
    good = Result(SETTING, MEASURED, real, (real,), MACHINE)
    assert good.holds
    assert not replace(good, faults=("job 7: no",)).holds
    assert not replace(good, simulations=((replace(real[0], jct_s=11.0),),)).holds


def test_one_result_is_kept_per_setting(tmp_path: Path) -> None:
    document = tmp_path / "fidelity.md"
    document.write_text(f"above\n{BEGIN}\n\n{END}\nbelow\n")
    real = (ended(10.0, 20.0),)
    for jct_s in (10.0, 10.2):
        simulated = (replace(real[0], jct_s=jct_s),)
        report.record(Result(SETTING, MEASURED, real, (simulated,), MACHINE), document)
    report.record(Result(replace(SETTING, seed=2), MEASURED, real, (real,), MACHINE), document)
    text = document.read_text()
    assert text.startswith("above\n") and text.endswith("below\n")
    assert text.count("\n## ") == 2
    assert "| average JCT | 10.00 s | 10.20 s | 10.20 s | 10.20 s | +2.0% | 5% |" in text


def test_cycles_of_the_controller_that_failed_are_a_fault() -> None:
    well = "controls cluster c in enforce mode\n"
    bad = "cycle failed, next try in 2.0 s: slurmctld is down. Start slurmctld.\n"
    assert main.failed_cycles(well) == ()
    assert main.failed_cycles(well + bad + bad) == (f"2 of the controller's cycles: {bad.strip()}",)


@pytest.mark.parametrize("option", ["--jobs=3", "--nodes=0", "--factor=nan", "--factor=0.5"])
def test_an_invalid_option_is_refused_before_anything_starts(
    option: str,
) -> None:
    ended = CliRunner().invoke(main.fidelity, [option])
    assert ended.exit_code == 2
    assert option.split("=")[0] in ended.output


# ---------------------------------------------------------------- on a real Slurm


@pytest.mark.slurm
@pytest.mark.long
def test_a_short_run_agrees_with_the_simulation(signals_as_before: None) -> None:
    """A dozen jobs for a minute: far too few for narrow bands, but every job's work is verified."""
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    with short_folder() as folder:
        result = main.both_sides(Place(folder / "c"), SETTING, known=MEASURED)
    assert result.faults == ()
    assert result.figures[0].simulated == pytest.approx(result.figures[0].real, rel=0.5)
