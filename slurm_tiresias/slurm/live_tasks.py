"""List the tasks of a job that are still in the queue."""

from __future__ import annotations

from slurm_tiresias.slurm import process

PATIENCE_S = 30.0


def live_tasks(job_id: str) -> frozenset[str]:
    """Return the ids of a job's pending, running or completing tasks: ``7``, or ``7_0``, ``7_1``.

    Empty once slurmctld has forgotten the job. Raises ``TiresiasError`` if Slurm does not answer.
    """
    command = ["squeue", "--noheader", "--array", f"--jobs={job_id}", "--format=%i"]
    answer = process.run(
        command, stdin="", timeout_s=PATIENCE_S, environment=process.environment({})
    )
    if answer.status == 0:
        return frozenset(answer.stdout.split())
    if process.UNKNOWN_JOB in answer.stderr:
        return frozenset()
    raise process.complaint("squeue", answer.stderr)
