"""MLflow: continue the run that this training had before it was requeued.

    from slurm_tiresias.job.mlflow import start_run
    from slurm_tiresias.job.tracker import run_id

    with start_run(run_id(folder)):
        for step in job.steps(total, save, done):
            mlflow.log_metric("loss", train(step), step=step)

MLflow chooses the ids of its runs itself, so the run is found by a tag.
"""

from __future__ import annotations

from typing import Any

import mlflow

TAG = "slurm_tiresias.run_id"


def start_run(run_id: str, **more: Any) -> Any:
    """The run with this tag in the present experiment, or a new one; ``mlflow.start_run``.

    ``more`` is passed to ``mlflow.start_run`` for a new run. Only one process of a job may call
    this.
    """
    known = mlflow.search_runs(
        filter_string=f"tags.`{TAG}` = '{run_id}'", max_results=1, output_format="list"
    )
    if known:
        return mlflow.start_run(run_id=known[0].info.run_id)
    return mlflow.start_run(**{**more, "tags": {**more.get("tags", {}), TAG: run_id}})
