"""The id by which a tracker recognizes a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_tiresias.job.tracker import FILE_NAME, run_id

IN_A_JOB = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "big"}


def test_a_requeued_job_keeps_its_tracker_id() -> None:
    assert run_id(environment=IN_A_JOB) == "slurm-big-17"
    assert run_id(environment={**IN_A_JOB, "SLURM_RESTART_COUNT": "3"}) == "slurm-big-17"


def test_array_tasks_and_jobs_submitted_by_them_have_separate_ids() -> None:
    """A job inherits SLURM_ARRAY_TASK_ID from the task that submits it."""
    array = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1"}
    ids = {run_id(environment={**IN_A_JOB, **array, "SLURM_JOB_ID": job}) for job in ("17", "18")}
    assert len(ids) == 2


def test_an_id_is_made_of_characters_that_trackers_take() -> None:
    odd = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "a b/ü" + "x" * 100}
    assert run_id(environment=odd) == "slurm-a-b--" + "x" * 35 + "-17"


def test_outside_of_slurm_each_training_has_a_separate_id() -> None:
    assert run_id(environment={}) != run_id(environment={})


def test_the_id_stays_with_the_checkpoints_in_another_job(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    first = run_id(folder, IN_A_JOB)
    assert run_id(folder, {**IN_A_JOB, "SLURM_JOB_ID": "99"}) == first
    assert run_id(tmp_path / "other", IN_A_JOB) != first
    assert [file.name for file in folder.iterdir()] == [FILE_NAME]


def test_processes_that_begin_together_take_the_same_id(tmp_path: Path) -> None:
    program = f"from slurm_tiresias.job.tracker import run_id; print(run_id({str(tmp_path)!r}))"
    begun = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in begun}) == 1


@pytest.mark.parametrize("content", [b"", b"two words\n", b"\xff\n", b"../x\n"])
def test_an_id_file_with_other_content_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(ValueError, match=FILE_NAME):
        run_id(tmp_path)
