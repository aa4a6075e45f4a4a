"""Which jobs' priorities were set by hand, from the output of sprio."""

from __future__ import annotations

from slurm_tiresias.slurm.pinned import PinnedJob, pinned_jobs

PRINTED = """\
1|gpu|1|0|0|0|0|0|0|0|0|
3|gpu|1530|0|1000|0|0|500|30|0|0|
8|gpu|1|100|0|0|0|0|0|0|0|
9|gpu|100|-100|0|0|0|0|0|0|0|
10|gpu|77|0|0|0|0|0|0|0|0|
11|big|4294967293|0|0|0|0|0|0|0|0|cpu=0,gres/gpu=0
12|gpu|40|0|0|0|0|0|0|0|0|cpu=10,gres/gpu=30
13|gpu|1600000000|0|0|0|0|0|0|0|1600000000|
14|gpu|0|0|0|0|0|0|0|0|0|
"""
"""Floors, factors, nice values, pins, billing weights, a site factor, and a held job."""


def test_a_priority_without_any_factor_was_set_by_hand() -> None:
    assert pinned_jobs(PRINTED) == (
        PinnedJob("10", "gpu", 77),
        PinnedJob("11", "big", 4_294_967_293),
    )


def test_lines_that_are_not_rows_are_skipped() -> None:
    assert pinned_jobs("\nslurm is odd today\n10|gpu|lots|0|0|0|0|0|0|0|0|\n") == ()
