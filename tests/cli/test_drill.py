"""The arguments and the output of ``drill``, without a Slurm."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import Result

from slurm_tiresias.cli import drill as command
from slurm_tiresias.cli.drill import (
    FAILED,
    UNKNOWN,
    as_object,
    divided,
    exit_code,
    notes_on,
    options_in,
    report,
)
from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.drill.judge import judge_all
from slurm_tiresias.drill.observed import Drill, Trial, TrialKind
from slurm_tiresias.errors import NotRunningError, RefusedError, UsageError
from tests.cli.running import Site, error_of
from tests.drill.pictures import KILL_WAIT_S, TOLD_S, after, run, trial
from tests.drill.test_judge import BROKEN


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\nsleep 1\n")
    return str(path)


def test_the_script_is_the_first_word_that_is_a_file(script: str) -> None:
    words = ("--gpus", "1", "-N2", script, "--steps", "100", "--json")
    assert divided(words) == (("--gpus", "1", "-N2"), (script, "--steps", "100", "--json"))


@pytest.mark.parametrize("words", [("--gpus=1",), ("nowhere.sh",), ("--wrap", "sleep 1")])
def test_without_a_script_it_says_what_to_write(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        divided(words)


def test_an_array_is_refused_on_the_command_line_and_in_the_script(script: str) -> None:
    array = Path(script).with_name("array.sh")
    array.write_text("#!/bin/sh\n#SBATCH --array=3-9%2\nsleep 1\n")
    for options in (("--array=1",), ("-a1",), options_in(str(array))):
        with pytest.raises(UsageError, match="array"):
            notes_on(options, script)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("#SBATCH --no-requeue # for now\n\nsleep 1\n", ["--no-requeue"]),
        ("sleep 1\n#SBATCH --no-requeue\n", []),
        ("trap 'kill $child; exit 0' SIGTERM\n", ["exit 0"]),
        ("leave() {\n  wait\n  exit 0\n}\ntrap leave INT TERM\n", ["exit 0"]),
        ("leave() {\n  exit 1\n}\ntrap leave TERM\ntrap 'exit 0' USR1\n", []),
    ],
)
def test_the_script_tells_what_no_trial_shows(tmp_path: Path, text: str, about: list[str]) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\n{text}")
    notes = notes_on(options_in(str(path)), str(path))
    assert [word for note in notes for word in ("--no-requeue", "exit 0") if word in note] == about


def test_bad_usage_is_one_line(site: Site) -> None:
    result = site.run("drill", "nowhere.sh")
    assert result.exit_code == 2
    assert error_of(result).startswith("There is no batch script among: nowhere.sh.")


@pytest.mark.parametrize("width", [80, 40])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    drill = Drill("17", KILL_WAIT_S, "USR1", 60.0, tuple(BROKEN.values()), ("n1",), ("x" * 300,))
    lines = list(report(drill, judge_all(drill), Screen(width)))
    # A link is never broken.
    assert [line for line in lines if len(line) > width and "docs/" not in line] == []
    assert any(line.startswith(f"{len(BROKEN)} trials: ") for line in lines)


def test_a_remedy_is_said_once() -> None:
    lost = trial(run(saved=10), after(0))
    drill = Drill("17", KILL_WAIT_S, "", 0.0, (lost, lost))
    text = "\n".join(report(drill, judge_all(drill), Screen(80)))
    assert text.count("resumed-from-nothing: ") == 2 and text.count("Change: ") == 1


def test_json_has_the_same_results() -> None:
    drill = Drill("17", KILL_WAIT_S, "", 0.0, tuple(BROKEN.values()))
    said = as_object(drill, judge_all(drill))
    assert [one["cause"]["code"] for one in said["trials"] if one["cause"]]
    assert said["exit_code"] == 16


def test_a_drill_without_any_trial_exits_as_untested() -> None:
    assert exit_code(()) == UNKNOWN


def test_the_report_says_that_the_job_was_requeued_once_it_saved_on_request() -> None:
    asked = run(
        saved=10,
        signal=signal.SIGURG,
        signal_s=TOLD_S,
        asked=True,
        answered_s=TOLD_S + 0.4,
        requeued_s=TOLD_S + 0.5,
        term_s=TOLD_S + 0.6,
    )
    drill = Drill("17", KILL_WAIT_S, "", 0.0, (trial(asked, after()),))
    text = " ".join(" ".join(report(drill, judge_all(drill), Screen(None))).split())
    assert "it was asked to save by SIGURG; it saved step 10 within 0.2 s" in text
    assert "it was requeued 0.5 s after the signal, as it reported the save" in text
    assert "a request to save first" in text
    unanswered = Drill(
        "17", KILL_WAIT_S, "", 0.0, (trial(replace(asked, answered_s=None), after()),)
    )
    text = " ".join(" ".join(report(unanswered, judge_all(unanswered), Screen(None))).split())
    assert "0.5 s after the signal, and had reported no save by then" in text


# Reports to the controller


def drill_of(*kinds: TrialKind, resumed: int = 10) -> Drill:
    trials = tuple(trial(run(saved=10), after(resumed), kind) for kind in kinds)
    return Drill("17", KILL_WAIT_S, "", 0.0, trials)


FAILS = drill_of(*TrialKind, resumed=0)
COUNTS = "[preemption]\ndrilled_min_run_s = 5\n"


@dataclass
class Told:
    """Collect the results that drills report to the controller; it may refuse them."""

    site: Site
    script: str
    patch: pytest.MonkeyPatch
    said: list[tuple[str, bool]]
    refuses: Exception | None = None

    def say(self, _state_dir: Path, job_id: str, *, passed: bool) -> None:
        self.said.append((job_id, passed))
        if self.refuses:
            raise self.refuses

    def run(self, drill: Drill, *options: str) -> Result:
        self.patch.setattr(command, "rehearse", lambda *_: drill)
        return self.site.run("drill", *options, self.script)


@pytest.fixture
def told(site: Site, script: str, monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told(site, script, monkeypatch, [])
    monkeypatch.setattr(command, "say_how_it_ended", told.say)
    return told


def test_the_result_is_not_sent_if_it_has_no_effect(told: Told) -> None:
    result = told.run(drill_of(*TrialKind))
    assert (result.exit_code, told.said) == (0, [])
    assert "noted" not in result.stdout
    said = json.loads(told.run(drill_of(*TrialKind), "--json").stdout)
    assert (said["noted"], said["not_noted_because"]) == (False, "")


def test_a_drill_with_all_trials_passed_is_reported_to_the_controller(told: Told) -> None:
    told.site.configure(COUNTS)
    result = told.run(drill_of(*TrialKind))
    assert (result.exit_code, told.said) == (0, [("17", True)])
    assert "your jobs of this name may be preempted 5 s after each start" in result.stdout
    assert json.loads(told.run(drill_of(*TrialKind), "--json").stdout)["noted"] is True


def test_a_drill_without_some_trials_is_not_reported_to_the_controller(told: Told) -> None:
    told.site.configure(COUNTS)
    assert told.run(drill_of(TrialKind.STEP, TrialKind.SAVE)).exit_code == 0
    ended = Trial(TrialKind.TWICE, (), trouble="the job ended by itself")
    unknown = replace(drill_of(*TrialKind), trials=(*drill_of(*TrialKind).trials[:-1], ended))
    assert told.run(unknown).exit_code == UNKNOWN
    assert told.said == []


def test_trials_that_hit_no_step_are_no_pass(told: Told) -> None:
    told.site.configure(COUNTS)
    shown = told.run(drill_of(TrialKind.START_UP, TrialKind.SAVE))
    assert (shown.exit_code, told.said) == (UNKNOWN, [])
    assert "not tested  preempted during a save" in shown.stdout


def test_a_failed_drill_is_reported_as_failed(told: Told) -> None:
    told.site.configure(COUNTS)
    result = told.run(FAILS, "--json")
    assert (result.exit_code, told.said) == (FAILED, [("17", False)])
    assert json.loads(result.stdout)["noted"] is False


@pytest.mark.parametrize(
    ("error", "because"),
    [
        (RefusedError("It knows no job 17", "Do"), "It knows no job 17"),
        (NotRunningError("No controller answers here", "Start it"), "No controller answers here"),
    ],
)
def test_a_drill_that_cannot_be_recorded_passes(told: Told, error: Exception, because: str) -> None:
    told.site.configure(COUNTS)
    told.refuses = error
    result = told.run(drill_of(*TrialKind))
    assert result.exit_code == 0
    assert f"This is not noted for your later jobs. {because}." in result.stdout
    said = json.loads(told.run(drill_of(*TrialKind), "--json").stdout)
    assert (said["noted"], said["not_noted_because"]) == (False, because)
