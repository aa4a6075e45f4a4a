"""Checkpoints survive a kill at any moment."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_tiresias import job

SAVER = """
import json, sys
from slurm_tiresias import job
number = 0
while True:
    number += 1
    with job.writing(sys.argv[1], "w") as file:
        json.dump({"number": number, "all": [number] * 200_000}, file)
    print(number, flush=True)
"""


def test_the_last_good_checkpoint_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    chance = random.Random(19)
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first == "1\n"
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        said = [int(line) for line in (first + process.stdout.read()).split()]
        state = json.loads(path.read_text())
        assert state["all"] == [state["number"]] * 200_000
        assert state["number"] in (said[-1], said[-1] + 1)


def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("good")
    with pytest.raises(ZeroDivisionError), job.writing(path, "w") as file:
        file.write("half")
        raise ZeroDivisionError
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]
    assert path.read_text() == "good"


def test_leftovers_of_a_killed_save_do_not_prevent_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.draft").write_text("half")
    with job.writing(tmp_path / "checkpoint", "w") as file:
        file.write("whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "kept").write_text("old")
    (tmp_path / "checkpoint").symlink_to(scratch / "kept")
    with job.writing(tmp_path / "checkpoint", "w") as file:
        file.write("new")
    assert (tmp_path / "checkpoint").is_symlink()
    assert (scratch / "kept").read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoint", "kept", "scratch"]


def test_the_permissions_of_a_checkpoint_stay(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for mode in (0o600, 0o664):
        path.write_text("old")
        path.chmod(mode)
        with job.writing(path, "w") as file:
            file.write("new")
        assert path.stat().st_mode & 0o777 == mode


def test_a_checkpoint_file_may_be_closed_in_the_block(tmp_path: Path) -> None:
    with job.writing(tmp_path / "checkpoint", "w") as file:
        file.write("whole")
        file.close()
    assert (tmp_path / "checkpoint").read_text() == "whole"


@pytest.mark.parametrize("mode", ["a", "ab", "r+", "x", ""])
def test_a_mode_that_does_not_write_anew_is_refused(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text("good")
    with pytest.raises(ValueError, match="mode"), job.writing(path, mode):
        pass
    assert path.read_text() == "good"
