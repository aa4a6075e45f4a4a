"""Which of one's own jobs are still in the queue."""

from __future__ import annotations

from slurm_tiresias.slurm import process

PATIENCE_S = 30.0


def live_tasks(job_id: str) -> frozenset[str]:
    """Ids of what pends, runs or completes of a job: ``7``, or ``7_0``, ``7_1`` of an array.

    Empty once slurmctld has forgotten it. Raises ``TiresiasError`` where Slurm does not answer.
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
