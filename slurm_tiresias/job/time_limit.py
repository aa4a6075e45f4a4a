"""When Slurm will end the job for its time limit."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping

END_VARIABLE = "SLURM_JOB_END_TIME"
"""The end of the job in seconds since 1970; older releases of Slurm such as 22.05 do not set it."""

JOB_VARIABLE = "SLURM_JOB_ID"
PATIENCE_S = 5.0
NEVER = float("inf")


def ends_s(environment: Mapping[str, str]) -> float:
    """The end of the job from the environment, or else from one squeue; ``NEVER`` if neither has
    it.

    A later change of the limit is not seen.
    """
    end = environment.get(END_VARIABLE, "")
    job_id = environment.get(JOB_VARIABLE, "")
    if not end and job_id.isdecimal():
        command = ["squeue", "--noheader", f"--jobs={job_id}", "--format=%e"]
        end = answer(command, {**environment, "SLURM_TIME_FORMAT": "%s"}).strip()
    return float(end) if end.isascii() and end.isdecimal() else NEVER


def answer(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command of Slurm's prints; "" if it fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=True,
        ).stdout.decode("utf-8", "replace")
    return ""
