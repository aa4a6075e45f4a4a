"""How commands are run; no Slurm is needed."""

from __future__ import annotations

import os

from slurm_tiresias.slurm import process


def test_a_slow_command_gets_all_of_a_long_input() -> None:
    """Ten thousand jobs at once are more than fits into a pipe, and take longer than one polling
    interval."""
    looked = []
    text = "update jobid=1 priority=1\n" * 50_000
    slow = ("sh", "-c", f"sleep {2 * process.MEANWHILE_EVERY_S}; wc -c")
    answer = process.run(
        slow,
        stdin=text,
        timeout_s=30.0,
        environment=dict(os.environ),
        meanwhile=lambda: looked.append(True),
    )
    assert int(answer.stdout) == len(text)
    assert looked
