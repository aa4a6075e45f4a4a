"""A drill on a cluster that loads the plugin, with a controller that manages the job."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

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
DAEMON = 1
OURS = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def test_a_managed_job_that_reports_through_the_plugin_passes(
    plugin: PluginCluster, readable: Path, tmp_path: Path
) -> None:
    """The job prints nothing: its steps are known only from the plugin's file."""
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
        assert not said["noted"]
    assert all(trial["saved"] and trial["steps_redone"] == 0 for trial in said["trials"])
    assert set(said["left"]) == {path.name for path in plugin.work.glob("checkpoint-*")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can submit jobs of several users")
def test_a_drilled_program_is_preempted_sooner_for_its_own_user_only(
    plugin: PluginCluster, readable: Path
) -> None:
    run = f"exec env PYTHONPATH={readable} /usr/bin/python3 train.py"
    script = plugin.work / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --gpus=1 --open-mode=append\n{run}\n")
    preemption = {"min_run_s": 600, "drilled_min_run_s": 2, "budget_share": 0}
    with (
        short_folder() as folder,
        open_channel(plugin, folder, TRAIN, preemption=preemption) as controller,
    ):
        config = ("--config", str(controller.config_file))
        ended = subprocess.run(
            [*OURS, "/usr/bin/python3", "-m", "slurm_tiresias.cli", *config, "drill", "job.sh"],
            cwd=plugin.work,
            env={**os.environ, **plugin.cluster.env, "PYTHONPATH": str(readable)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "The controller has noted it: your jobs of this name" in ended.stdout
        name = ("--job-name=job.sh", "--gres=gpu:4", "--nodelist")
        drilled = plugin.submit(run, *name, "n1")
        others = plugin.submit(run, *name, "n2", f"--uid={DAEMON}", f"--gid={DAEMON}")
        try:
            for job in (drilled, others):
                controller.wait_for_tier(job, 1)
            shown = [controller.job(job) for job in (drilled, others)]
            assert [job and (job.drilled, job.min_run_s) for job in shown] == [
                (True, 2.0),
                (False, 600.0),
            ]
            told = " ".join(controller.cli("explain", drilled).stdout.split())
            assert "have passed a drill, so it may be preempted 2s after each start" in told

            waits = plugin.submit("sleep 1", "--gres=gpu:4", "--nodelist=n2")
            short = plugin.submit("sleep 1", "--gres=gpu:4", "--nodelist=n1")
            assert plugin.wait(short).status == "0:0"
            assert controller.events("preempted") == [(drilled, short)]
            still = controller.job(waits)
            assert still is not None and still.state == "pending"
            assert [(one.job_id, one.protection) for one in still.blockers] == [
                (others, "minimum-run-time")
            ]

            controller.kill()
            controller.start()
            shown = [controller.job(job) for job in (drilled, others)]
            assert [job and job.drilled for job in shown] == [True, False]
        finally:
            plugin.cluster.run("scancel", f"--user={DAEMON}", "--full", "--signal=KILL")
