"""What is made of any reports of a run: they are users' programs' to write."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.record import MOST_STEPS, MOST_TIME_S, STATES, Record, decode, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.progress.heard import Run

STEPS = st.integers(0, MOST_STEPS)
TIMES = st.floats(0, MOST_TIME_S)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that a reader accepts."""
    first, step, total = sorted(draw(st.tuples(STEPS, STEPS, STEPS.map(lambda n: n + 1))))
    return Record(
        step=step,
        total=draw(st.sampled_from([None, min(total, MOST_STEPS)])),
        at_s=draw(TIMES),
        first_step=first,
        first_s=draw(TIMES),
        steps_per_s=0.0,
        saved_step=draw(st.none() | STEPS),
        saved_s=draw(st.none() | TIMES),
        resumed_step=draw(st.none() | STEPS),
        state=draw(st.sampled_from(STATES)),
    )


@given(st.lists(st.tuples(records(), st.sampled_from(ProgressSource), TIMES), min_size=1))
def test_whatever_a_run_reports_its_progress_is_finite_and_not_in_the_future(
    reports: list[tuple[Record, ProgressSource, float]],
) -> None:
    run = Run(restarts=0)
    now_s = 0.0
    for record, source, later_s in reports:
        if record.total == 0:
            continue
        now_s += later_s
        run.take(source, decode(encode(record)), now_s, now_s)
        told = run.progress
        assert told.reported_s <= now_s
        assert told.advanced_s <= now_s
        assert told.saved_s is None or told.saved_s <= told.reported_s
        remaining = told.remaining(told.step)
        if remaining is not None:
            assert 0 <= remaining.least_s <= remaining.likely_s <= remaining.most_s < math.inf
