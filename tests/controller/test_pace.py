"""When cycles run: how soon after an event, and how much of the time they use at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.controller.pace import MOST_LOAD, Pace

INTERVAL_S = 10.0
MINUTES = 10


def begun(
    took_s: Iterator[float],
    *,
    until_s: float = 60.0 * MINUTES,
    wrote: Callable[[float], bool] = lambda _now_s: False,
    unsettled: Callable[[float], bool] = lambda _now_s: True,
    nudged_every_s: float = 0.0,
) -> list[float]:
    """When cycles begin, each of which takes the next of these times."""
    pace, starts = Pace(INTERVAL_S, 0.0), []
    nudge_s = nudged_every_s
    while pace.next_s < until_s:
        while nudged_every_s and nudge_s <= pace.next_s:
            pace.nudge(nudge_s)
            nudge_s += nudged_every_s
        starts.append(now_s := pace.next_s)
        pace.begin(now_s)
        now_s += next(took_s)
        pace.end(now_s, wrote=wrote(now_s), unsettled=unsettled(now_s))
        nudge_s = max(nudge_s, now_s) if nudged_every_s else 0.0
    return starts


@pytest.mark.parametrize(
    ("took_s", "idle", "stuck", "busy"),
    [(0.06, 6, 36, 254), (0.2, 6, 32, 76), (0.8, 6, 18, 19), (4.0, 6, 6, 6)],
)
def test_cycles_a_minute(took_s: float, idle: int, stuck: int, busy: int) -> None:
    """With nothing under way; with a job that is nominated each minute and that Slurm does not
    start; and with a write in each cycle and a nudge every 50 ms: the most that users can cause."""
    takes = repeat(took_s)
    minutes = iter(range(MINUTES + 1))
    due_s = 60.0 * next(minutes)

    def each_minute(now_s: float) -> bool:
        nonlocal due_s
        is_due = now_s >= due_s
        due_s = 60.0 * next(minutes) if is_due else due_s
        return is_due

    counts = [
        len(begun(takes, unsettled=lambda _now_s: False)),
        len(begun(takes, wrote=each_minute)),
        len(begun(takes, wrote=lambda _now_s: True, nudged_every_s=0.05)),
    ]
    assert [round(count / MINUTES) for count in counts] == [idle, stuck, busy]


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, MOST_LOAD * INTERVAL_S), st.booleans(), st.booleans(), st.floats(0, 12)
        ),
        max_size=80,
    )
)
def test_cycles_use_no_more_than_their_share(course: list[tuple[float, bool, bool, float]]) -> None:
    pace, used_s, longest_s = Pace(INTERVAL_S, 0.0), 0.0, 0.0
    for took_s, wrote, unsettled, nudge_after_s in course:
        began_s = pace.next_s
        share_s = MOST_LOAD * (began_s + INTERVAL_S)
        assert used_s <= share_s + 2 * longest_s
        pace.begin(began_s)
        pace.end(began_s + took_s, wrote=wrote, unsettled=unsettled)
        assert pace.next_s <= max(began_s + INTERVAL_S, began_s + took_s)
        pace.nudge(began_s + took_s + nudge_after_s)
        used_s, longest_s = used_s + took_s, max(longest_s, took_s)


@pytest.mark.parametrize("took_s", [0.06, 0.5])
def test_a_preemption_after_a_quiet_time_is_followed_without_delay(took_s: float) -> None:
    """The first looks come after 50, 100 and 200 ms, or after the length of a cycle."""
    pace = Pace(INTERVAL_S, 0.0)
    pace.nudge(100.0)
    pauses = []
    for wrote in (True, False, False):
        began_s = pace.next_s
        pace.begin(began_s)
        pace.end(began_s + took_s, wrote=wrote, unsettled=True)
        pauses.append(pace.next_s - began_s - took_s)
    assert pauses == pytest.approx([max(pause_s, took_s) for pause_s in (0.05, 0.1, 0.2)])


def test_what_is_under_way_for_long_is_looked_at_ever_more_rarely() -> None:
    starts = begun(repeat(0.01), until_s=60.0)
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(starts)]
    assert gaps == sorted(gaps)
    assert max(gaps) == pytest.approx(6.0, abs=1.0)
    assert all(gap <= 0.15 * at + 0.6 for at, gap in zip(starts, gaps, strict=False))


def test_nudges_after_a_failure_wait_for_its_gap() -> None:
    pace = Pace(INTERVAL_S, 0.0)
    pace.begin(0.0)
    pace.fail(0.1, 60.0)
    pace.nudge(0.2, INTERVAL_S)
    assert pace.next_s == INTERVAL_S
