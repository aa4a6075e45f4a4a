"""A slow scontrol: what it has answered before its time limit counts. No Slurm is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import (
    Commands,
    UnfinishedWriteError,
    Update,
    Write,
    WriteFailure,
)

SLOW = """#!/bin/sh
if [ "$1" = ping ]; then echo "Slurmctld(primary) at here is UP"; exit; fi
while read -r word rest; do
    case "$word $rest" in
        after-*) echo "invalid keyword: $word" >&2;;
        *JobId=2\\ *) echo "slurm_update error: refused" >&2;;
        *JobId=$DIES_AT\\ *) echo "$LAST_WORDS" >&2; [ "$LAST_WORDS" ] || exit 1;;
    esac
    sleep "$PAUSE_S"
done
"""

WRITES: list[Write] = [Update(f"{number}", priority=5) for number in range(1, 11)]


def slow_slurm(folder: Path, timeout_s: float, **environment: str) -> CommandSlurm:
    script = folder / "scontrol"
    script.write_text(SLOW)
    script.chmod(0o755)
    told = {"PAUSE_S": "0", "DIES_AT": "-", "LAST_WORDS": "", **environment}
    return CommandSlurm(Commands(scontrol=str(script), timeout_s=timeout_s, environment=told))


def test_what_was_answered_before_the_time_limit_is_told(tmp_path: Path) -> None:
    slurm = slow_slurm(tmp_path, timeout_s=1.0, PAUSE_S="0.1")
    left, refused = WRITES, list[WriteFailure]()
    attempts = 0
    while left:
        attempts += 1
        try:
            refused += slurm.write(left)
            left = []
        except UnfinishedWriteError as error:
            assert "no answer within 1 s" in str(error)
            assert 0 < error.answered < len(left)
            refused += error.refused
            left = left[error.answered :]
    assert 2 <= attempts <= 8
    assert [(failure.write.key, failure.message) for failure in refused] == [
        ("2", "slurm_update error: refused")
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "it failed without a word"),
        ("slurm_update error: Unable to contact slurm controller", "cannot reach Slurm"),
    ],
)
def test_what_was_answered_before_slurmctld_or_scontrol_ended_is_told(
    tmp_path: Path, said: str, reason: str
) -> None:
    slurm = slow_slurm(tmp_path, timeout_s=30.0, DIES_AT="6", LAST_WORDS=said)
    with pytest.raises(SlurmUnreachableError, match=reason) as caught:
        slurm.write(WRITES)
    assert isinstance(caught.value, UnfinishedWriteError)
    assert caught.value.answered == 5
    assert [failure.write.key for failure in caught.value.refused] == ["2"]
