"""A preempted training remains one run in W&B and in MLflow, if these are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S

STEPS = 40
PREEMPTIONS = 5

LOOP = """
import os, time
from pathlib import Path
from slurm_tiresias import job
from slurm_tiresias.job.tracker import run_id

folder = Path(os.environ["CHECKPOINT_DIR"])
checkpoint = folder / "step"

def save(step):
    with job.writing(checkpoint, "w") as file:
        file.write(str(step))

def steps():
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for step in job.steps(40, save, done):
        time.sleep(0.05)
        yield step
        print("step", step, flush=True)
"""
WANDB = f"""{LOOP}
import wandb
wandb.init(id=run_id(folder), resume="allow", project="test")
for step in steps():
    wandb.log({{"loss": 1.0 / (step + 1)}}, step=step)
"""
MLFLOW = f"""{LOOP}
import mlflow
from slurm_tiresias.job.mlflow import start_run
with start_run(run_id(folder)):
    for step in steps():
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
"""
WANDB_HISTORY = """
import json, sys
from wandb.proto import wandb_internal_pb2

def records(content):
    # The log format of LevelDB, after a header of 7 bytes.
    place, record = 7, b""
    while place + 7 <= len(content):
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        if kind in (1, 4):
            yield record
            record = b""

for data in records(open(sys.argv[1], "rb").read()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    for item in record.history.item:
        if (item.key or ".".join(item.nested_key)) == "loss":
            print(json.dumps([record.history.step.num, float(item.value_json)]))
"""
MLFLOW_HISTORY = """
import json, mlflow
runs = mlflow.search_runs(output_format="list")
for run in runs:
    for metric in mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss"):
        print(json.dumps([metric.step, metric.value]))
print(len(runs))
"""
EXPECTED = [[step, 1.0 / (step + 1)] for step in range(STEPS)]


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


def preempted_training(program: str, folder: Path, environment: dict[str, str]) -> None:
    """Preempt a training with SIGTERM to all of its processes, then let it finish."""
    chance = random.Random(23)
    for leave_after in [*(chance.randint(1, 6) for _ in range(PREEMPTIONS)), 0]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **environment, "CHECKPOINT_DIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        steps = 0
        for line in process.stdout:
            steps += line.startswith("step")
            if steps == leave_after and line.startswith("step"):
                os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == (128 + signal.SIGTERM if leave_after else 0)


def printed(program: str, environment: dict[str, str], *words: str) -> list[object]:
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.long
@needs("wandb")
def test_wandb_has_one_run_with_each_step_once(tmp_path: Path) -> None:
    """Offline, each start leaves a file that ``wandb sync`` would send to the run that it names."""
    environment = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    preempted_training(WANDB, tmp_path, environment)
    files = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == PREEMPTIONS + 1
    assert len({file.name for file in files}) == 1
    history = [row for file in files for row in printed(WANDB_HISTORY, environment, str(file))]
    assert sorted(history, key=str) == sorted(EXPECTED, key=str)


@pytest.mark.long
@needs("mlflow")
def test_mlflow_has_one_run_with_each_step_once(tmp_path: Path) -> None:
    # mlflow-skinny can only store runs in files, which newer releases refuse by default.
    environment = {
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlflow",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    preempted_training(MLFLOW, tmp_path, environment)
    *history, runs = printed(MLFLOW_HISTORY, environment)
    assert runs == 1
    assert history == EXPECTED
