"""What the command makes of its words, and how it says what it found; without a Slurm."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.cli.drill import UNKNOWN, as_object, divided, exit_code, one_task, report
from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.drill.judge import judge_all
from slurm_tiresias.drill.observed import Drill
from slurm_tiresias.errors import UsageError
from tests.cli.running import Site, error_of
from tests.drill.pictures import KILL_WAIT_S, TOLD_S, after, run, trial
from tests.drill.test_judge import BROKEN


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n#SBATCH --array=3-9%2\nsleep 1\n")
    return str(path)


def test_the_script_is_the_first_word_that_is_a_file(script: str) -> None:
    words = ("--gpus", "1", "-N2", script, "--steps", "100", "--json")
    assert divided(words) == (("--gpus", "1", "-N2"), (script, "--steps", "100", "--json"))


@pytest.mark.parametrize("words", [("--gpus=1",), ("nowhere.sh",), ("--wrap", "sleep 1")])
def test_without_a_script_it_says_what_to_write(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        divided(words)


def test_an_array_is_one_task_of_it(script: str) -> None:
    assert one_task((), script) == ("--array=3",)


def test_bad_usage_is_one_line(site: Site) -> None:
    result = site.run("drill", "nowhere.sh")
    assert result.exit_code == 2
    assert error_of(result).startswith("No batch script among: nowhere.sh.")


@pytest.mark.parametrize("width", [80, 40])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    drill = Drill("17", KILL_WAIT_S, "USR1", 60.0, tuple(BROKEN.values()), ("n1",), ("x" * 300,))
    lines = list(report(drill, judge_all(drill), Screen(width)))
    # A link is never broken.
    assert [line for line in lines if len(line) > width and "docs/" not in line] == []
    assert any(line.startswith("19 trials: ") for line in lines)


def test_json_has_the_same() -> None:
    drill = Drill("17", KILL_WAIT_S, "", 0.0, tuple(BROKEN.values()))
    said = as_object(drill, judge_all(drill))
    assert [one["findings"][0]["code"] for one in said["trials"] if one["findings"]]
    assert said["exit_code"] == 16


def test_a_drill_without_a_trial_could_not_be_rehearsed() -> None:
    assert exit_code(()) == UNKNOWN


def test_it_says_that_the_job_was_asked_to_save_and_requeued_as_it_had() -> None:
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
