"""How long the controller waits after failed cycles."""

from __future__ import annotations

import pytest

from slurm_tiresias.controller.run import LONGEST_BACKOFF_S, _pause_s


@pytest.mark.parametrize("failures", [1, 3, 10, 5000])
def test_pauses_grow_with_failures_but_never_beyond_their_bound(failures: int) -> None:
    longest_s = min(LONGEST_BACKOFF_S, 10.0 * 2 ** min(failures, 10))
    assert longest_s / 2 <= _pause_s(failures, 10.0) <= longest_s
