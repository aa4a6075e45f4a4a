"""A drill on a cluster that loads the plugin, with a controller that manages the job."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

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
