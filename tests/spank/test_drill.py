"""A drill where the plugin is loaded and a controller manages the job."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from scripts.testbed.real_cluster import short_folder
from tests.spank.channel import open_channel
from tests.spank.plugin import NOBODY, PluginCluster

TRAIN = """
import os
import time
from pathlib import Path

from slurm_tiresias import job

checkpoint = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}")


def save(step):
    with job.writing(checkpoint, "w") as file:
        file.write(str(step))


done = int(checkpoint.read_text()) if checkpoint.exists() else 0
for _ in job.steps(100_000, save, done):
    time.sleep(0.05)
"""
OURS = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def test_a_managed_job_that_reports_through_the_plugin_passes(
    plugin: PluginCluster, readable: Path, tmp_path: Path
) -> None:
    """It prints nothing: all that is known of its steps has come by the plugin's file."""
    script = plugin.work / "job.sh"
    with open_channel(plugin, tmp_path, TRAIN) as controller:
        script.write_text(
            "#!/bin/sh\n#SBATCH --gpus=1 --open-mode=append\n"
            f"exec env PYTHONPATH={readable} /usr/bin/python3 train.py\n"
        )
        command = [*(OURS if os.geteuid() == 0 else ()), "/usr/bin/python3", "-m"]
        command += ["slurm_tiresias.cli", "drill", "--json", "--trial", "step", "--trial", "save"]
        ended = subprocess.run(
            [*command, "job.sh"],
            cwd=plugin.work,
            env={**os.environ, **plugin.cluster.env, "PYTHONPATH": str(readable)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        said = json.loads(ended.stdout)
        controller.wait_until(
            lambda: len(controller.runs(said["job_id"])) == 3, "its runs count like any other's"
        )
    assert all(trial["saved"] and trial["steps_redone"] == 0 for trial in said["trials"])
    assert not list(plugin.work.glob("checkpoint-*"))


def test_a_program_that_passed_all_trials_may_be_preempted_sooner_from_then_on(
    plugin: PluginCluster, readable: Path
) -> None:
    settings = {"min_run_s": 600, "drilled_min_run_s": 1, "budget_share": 0}
    policy = {"thresholds_gpu_s": [8]}
    with (
        short_folder() as place,
        open_channel(plugin, place, TRAIN, preemption=settings, policy=policy) as controller,
    ):
        run = f"exec env PYTHONPATH={readable} /usr/bin/python3 train.py"
        script = plugin.work / "job.sh"
        script.write_text(f"#!/bin/sh\n#SBATCH --gpus=1 --open-mode=append\n{run}\n")
        command = [*(OURS if os.geteuid() == 0 else ()), "/usr/bin/python3", "-m"]
        command += [
            "slurm_tiresias.cli",
            "drill",
            "--json",
            "--config",
            str(controller.config_file),
        ]
        ended = subprocess.run(
            [*command, "job.sh"],
            cwd=plugin.work,
            env={**os.environ, **plugin.cluster.env, "PYTHONPATH": str(readable)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert json.loads(ended.stdout)["noted"] is True

        drilled = plugin.submit(run, "--job-name=job.sh", "--gpus=4")
        other = plugin.submit(run, "--job-name=other.sh", "--gpus=4")
        for job in (drilled, other):
            controller.wait_for_tier(job, 1)
        shown = [controller.job(job) for job in (drilled, other)]
        assert [one and (one.drilled, one.min_run_s) for one in shown] == [(True, 1), (False, 600)]
        said = " ".join(controller.cli("explain", drilled).stdout.split())
        assert "have passed a drill, so it may be preempted 1s after each start" in said

        short = plugin.submit("sleep 1", "--gpus=4")
        assert plugin.wait(short).status == "0:0"
        assert [victim for victim, _ in controller.events("preempted")] == [drilled]
