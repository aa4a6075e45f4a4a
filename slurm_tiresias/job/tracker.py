"""One run in an experiment tracker for all runs of a job: an id that outlives a requeue.

    wandb.init(id=run_id(folder), resume="allow")           # Weights & Biases
    wandb.log({"loss": loss}, step=step)

For MLflow see ``slurm_tiresias.job.mlflow``.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path

from slurm_tiresias.job.time_limit import JOB_VARIABLE

CLUSTER_VARIABLE = "SLURM_CLUSTER_NAME"
FILE_NAME = "tracker-run-id"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def run_id(
    folder: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """The id of this training, the same after each requeue; letters, digits, ``-`` and ``_``.

    Parameters
    ----------
    folder
        Where the checkpoints are, on a file system that all nodes see. The id is stored in a file
        there, so it stays with the checkpoints, even in another job, and a new training gets a new
        id.
    environment
        Without a folder, the id consists of the cluster's name and the job's number (each array
        task has its own). A cluster that is set up anew starts again from job 1. Outside of Slurm
        each call returns a new id.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the file does not contain an id.
    """
    if folder is not None:
        return _kept_in(Path(folder) / FILE_NAME)
    environment = os.environ if environment is None else environment
    job_id = environment.get(JOB_VARIABLE, "")
    if not job_id:
        return uuid.uuid4().hex
    cluster = re.sub(r"[^A-Za-z0-9]", "-", environment.get(CLUSTER_VARIABLE, ""))[:40]
    return f"slurm-{cluster}-{job_id}" if cluster else f"slurm-{job_id}"


def _kept_in(file: Path) -> str:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
        draft.write_text(f"{uuid.uuid4().hex}\n")
        # If several processes do this at the same time, one comes first, and all use its id.
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
        draft.unlink()
    kept = file.read_text(errors="replace").strip()
    if not _ID.fullmatch(kept):
        raise ValueError(f"{file}: not the id of a run. Remove it to begin a new run.")
    return kept
