"""The progress of a run, from what it prints.

The monitor in the job keeps the latest text of each kind of line that may show progress
(spank/monitor/output.h). Here these texts are compared between readings, and a count is accepted
once it has behaved like the progress of the whole training.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurm_tiresias.job.record import MOST_STEPS, MOST_TIME_S, Record
from slurm_tiresias.progress.output_lines import Count, Level, counts_in

FILE_BYTES = 4096
SLOT_BYTES = 512
MAGIC = 0x3154554F

LEAST_MOVES = 3
LEAST_S = 30.0
"""A count is accepted after this many changes over this much time."""

FINISHED_S = 60.0
"""How long a count that has reached its total still represents a run that continues."""

STALE_S = 600.0
"""A count that changed, and then did not for this long and ten times its usual pause, was
abandoned."""

RATE_WINDOW_S = 60.0
"""The recent rate is measured over the last one to two of these intervals."""

MOST_AGE_S = 30 * 86400.0
MOST_TRACKS = 64
MOST_NESTS = 256

_HEAD = struct.Struct("<II7QII")
_TAIL = struct.Struct("<II")


@dataclass(frozen=True)
class SlotReading:
    """A slot of the file at one reading; times in seconds since 1970."""

    slot: int
    text: bytes
    first_s: float
    last_s: float
    changed_s: float


def readings_in(content: bytes) -> dict[int, SlotReading | None]:
    """The slots in use, by number; None for one that was being written to."""
    found: dict[int, SlotReading | None] = {}
    for slot in range(len(content) // SLOT_BYTES if len(content) == FILE_BYTES else 0):
        part = content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
        magic, sequence, _, _, first, last, changed, _, _, _, length = _HEAD.unpack_from(part)
        _, written = _TAIL.unpack_from(part, SLOT_BYTES - _TAIL.size)
        text = part[_HEAD.size : -_TAIL.size]
        if magic == MAGIC:
            whole = sequence == written and length <= len(text)
            times = first / 1000, last / 1000, changed / 1000
            found[slot] = SlotReading(slot, text[:length], *times) if whole else None
    return found


class _Growth:
    """The growth of one count of steps."""

    def __init__(self, step: int, at_s: float) -> None:
        self.moves = self.falls = 0
        self._begin(step, at_s)

    def _begin(self, step: int, at_s: float) -> None:
        self.moves = 0
        self.step, self.at_s = step, at_s
        self.first_step, self.first_s = step, at_s
        self._window = [(step, at_s)]

    def follow(self, step: int, at_s: float) -> None:
        if step < self.step:
            self.falls += 1
            self._begin(step, at_s)
        elif step > self.step:
            self.moves += 1
            self.step, self.at_s = step, max(at_s, self.at_s)
            if self.at_s - self._window[-1][1] >= RATE_WINDOW_S:
                self._window = [self._window[-1], (step, self.at_s)]

    @property
    def steps_per_s(self) -> float:
        from_step, from_s = self._window[0]
        if self.at_s <= from_s:
            return 0.0
        return (self.step - from_step) / (self.at_s - from_s)

    @property
    def is_consistent(self) -> bool:
        return self.moves >= LEAST_MOVES and self.at_s - self.first_s >= LEAST_S


_Key = tuple[str, Level, int]


class _Track:
    """One count over several readings: a progress bar, or a kind of line."""

    def __init__(self, reading: SlotReading, count: Count, changed_s: float, now_s: float) -> None:
        first_s = reading.first_s if 0 <= reading.first_s <= now_s else now_s
        self.begun = first_s, reading.slot, count.level
        self.growth = _Growth(count.step, changed_s)
        self.from_zero = False
        self.repeats = False
        """Whether it has started again after its end, so that it covers only a part of the
        training."""
        self._take(reading, count, changed_s, now_s)

    def follow(self, reading: SlotReading, count: Count, changed_s: float, now_s: float) -> None:
        if count.step < self.growth.step:
            self.repeats |= self._could_be_at(changed_s) >= count.total or self.growth.falls > 0
        if count.step == self.growth.step:
            changed_s = self.changed_s
        self.growth.follow(count.step, changed_s)
        self._take(reading, count, changed_s, now_s)

    def _take(self, reading: SlotReading, count: Count, changed_s: float, now_s: float) -> None:
        self.count = count
        self.slot = reading.slot
        self.changed_s = changed_s
        self.last_s = max(changed_s, plausible(reading.last_s, now_s))
        self._looked_s = now_s
        self.from_zero |= count.step == 0

    def _could_be_at(self, at_s: float) -> float:
        """The step that it may have reached unseen; a progress bar need not draw its last steps."""
        unseen_s = 1 + max(0.0, at_s - self._looked_s)
        return self.growth.step + self.count.total / 100 + self.growth.steps_per_s * unseen_s

    @property
    def begun_s(self) -> float:
        return self.begun[0]

    @property
    def skipped(self) -> int:
        """1 if a line counts from one and is printed when its epoch begins, else 0."""
        return 0 if self.count.done or self.from_zero else 1

    @property
    def total(self) -> int:
        """One more than printed if a line counts from zero up to the total."""
        counts_on = not self.count.done and self.from_zero and self.count.step == self.count.total
        return self.count.total + counts_on

    @property
    def is_finished(self) -> bool:
        return self.count.step - self.skipped >= self.total

    def is_stale(self, now_s: float) -> bool:
        growth = self.growth
        if growth.moves == 0:
            return False
        pause_s = (growth.at_s - growth.first_s) / growth.moves
        return now_s - self.changed_s > max(STALE_S, 10 * pause_s)


class _Nest:
    """An outer loop and an inner loop that runs once per outer iteration, as one count of steps."""

    def __init__(self, outer: _Track, inner: _Track, in_one_line: bool) -> None:
        self.outer = outer
        self.inner = inner
        self._begins_with_outer = in_one_line or outer.begun <= inner.begun
        self.is_refuted = self.total > MOST_STEPS
        self._confirmed = False
        self._before_turn: _Moment | None = None
        self._last = _Moment.of(outer, inner)
        self.growth = _Growth(self._done(), self._changed_s)

    @property
    def begun_s(self) -> float:
        return self.outer.begun_s

    @property
    def total(self) -> int:
        return self.outer.total * self.inner.count.total

    @property
    def _changed_s(self) -> float:
        return max(self.outer.changed_s, self.inner.changed_s)

    def follow(self) -> None:
        self._compare()
        done = self._done()
        if done > self.total:
            self.is_refuted = True
            return
        self.growth.follow(done, self._changed_s)
        self.is_refuted |= self.growth.falls > 1

    def _compare(self) -> None:
        """Check whether the inner count restarts when the outer one changes."""
        outer, inner = self.outer, self.inner
        if outer.growth.step > self._last.turn:
            if self._before_turn is not None and outer.count.level is Level.STEP:
                self.is_refuted = True
            self._before_turn = self._last
        self._last = now = _Moment.of(outer, inner)
        before = self._before_turn
        if before is None or inner.changed_s <= outer.changed_s:
            return
        self._before_turn = None
        passed = inner.growth.steps_per_s * (now.changed_s - before.changed_s)
        if now.falls > before.falls:
            self._confirmed |= now.turn == before.turn + 1
        elif 0 < passed < inner.count.total / 2:
            # Too short for a whole turn of the outer loop: this count covers the steps of all
            # turns.
            self.is_refuted = True

    def _done(self) -> int:
        outer, inner = self.outer, self.inner
        turns = outer.count.step
        if not outer.count.bar and not outer.from_zero and self._begins_with_outer:
            turns -= 1
        return turns * inner.count.total + (inner.count.step if self._is_of_this_turn() else 0)

    def _is_of_this_turn(self) -> bool:
        """Whether the inner count belongs to the iteration that the outer one shows."""
        outer, inner = self.outer, self.inner
        if outer.slot == inner.slot or inner.changed_s > outer.changed_s:
            return True
        # Whether the two counts belong together, as far as is known.
        return inner.changed_s == outer.changed_s and not inner.is_finished

    @property
    def is_likely(self) -> bool:
        """Whether the two counts belong together, as far as is known."""
        if self.is_refuted or self.outer.repeats:
            return False
        if self.outer.count.level is Level.EPOCH:
            return self._begins_with_outer or self.inner.repeats
        return self._confirmed


@dataclass(frozen=True)
class _Moment:
    """The two counts of a nest at one reading."""

    turn: int
    falls: int
    changed_s: float

    @classmethod
    def of(cls, outer: _Track, inner: _Track) -> _Moment:
        return cls(outer.growth.step, inner.growth.falls, inner.changed_s)


class OutputProgress:
    """Tracks one run's output; it gets the content of the file every ten seconds or so."""

    def __init__(self) -> None:
        self._readings: dict[int, SlotReading] = {}
        self._tracks: dict[_Key, _Track] = {}
        self._nests: dict[tuple[_Key, _Key], _Nest] = {}
        self._updated_s = 0.0
        self._believed: _Track | _Nest | None = None

    def update(self, content: bytes, now_s: float) -> Record | None:
        """Process a new reading of the file.

        Parameters
        ----------
        content
            The whole file. Whatever the user has written into it, this never raises.
        now_s
            The time of the node, in seconds since 1970.

        Returns
        -------
        Record or None
            The progress of the run; None while it is unknown, or unknown again.
        """
        now_s = min(max(now_s, 0.0), MOST_TIME_S)
        # A slot that is being written to keeps its previous value.
        known = {
            slot: reading or self._readings.get(slot)
            for slot, reading in readings_in(content).items()
        }
        self._readings = {slot: reading for slot, reading in known.items() if reading}
        latest: dict[_Key, tuple[SlotReading, Count]] = {}
        in_one_line: set[tuple[_Key, _Key]] = set()
        for reading in sorted(self._readings.values(), key=lambda each: each.last_s):
            found = {_key(count): (reading, count) for count in counts_in(reading.text)}
            latest |= found
            in_one_line |= set(itertools.combinations(found, 2))
        for key, (reading, count) in latest.items():
            self._follow(key, reading, count, now_s)
        self._follow_nests(list(latest), in_one_line)
        _keep_latest(self._tracks, MOST_TRACKS)
        _keep_latest(self._nests, MOST_NESTS)
        self._updated_s = now_s
        self._believed = self._choose([self._tracks[key] for key in latest], now_s)
        return None if self._believed is None else _record(self._believed)

    def _follow(self, key: _Key, reading: SlotReading, count: Count, now_s: float) -> None:
        changed_s = plausible(reading.changed_s, now_s)
        track = self._tracks.pop(key, None)
        if track is None:
            track = _Track(reading, count, changed_s, now_s)
        else:
            # The step has changed since the last reading, so its time cannot be earlier than that.
            recent = changed_s >= self._updated_s - 1
            track.follow(reading, count, changed_s if recent else now_s, now_s)
        self._tracks[key] = track

    def _follow_nests(self, keys: list[_Key], in_one_line: set[tuple[_Key, _Key]]) -> None:
        for pair in itertools.permutations(keys, 2):
            outer, inner = (self._tracks[key] for key in pair)
            if not _may_nest(outer.count, inner.count):
                continue
            nest = self._nests.pop(pair, None)
            if nest is None or nest.outer is not outer or nest.inner is not inner:
                nest = _Nest(outer, inner, pair in in_one_line)
            else:
                nest.follow()
            self._nests[pair] = nest

    def _choose(self, tracks: list[_Track], now_s: float) -> _Track | _Nest | None:
        """Return the outermost consistent count; keep the accepted one while it is consistent, and
        for a while after its end, until there is one that began later."""
        candidates = list(self._candidates(tracks, now_s))
        believed = self._believed
        if believed in candidates:
            return believed
        if believed is not None and _has_just_ended(believed, now_s):
            end_s = believed.growth.at_s
            return next((each for each in candidates if each.begun_s >= end_s - 1.0), believed)
        return candidates[0] if candidates else None

    def _candidates(self, tracks: list[_Track], now_s: float) -> Iterator[_Track | _Nest]:
        nests = [nest for nest in self._nests.values() if nest.is_likely and nest.inner in tracks]
        unfinished = sorted(
            (
                track
                for track in tracks
                if not (track.is_finished or track.repeats or track.is_stale(now_s))
            ),
            key=lambda track: (not track.count.sure, track.begun),
        )
        for track in unfinished:
            if self._is_held_back(track, unfinished):
                continue
            inside = [nest for nest in nests if nest.outer is track]
            inside.sort(key=lambda nest: nest.inner.begun)
            yield from (nest for nest in inside if nest.growth.is_consistent)
            if track.growth.is_consistent and (not inside or track is self._believed):
                yield track

    def _is_held_back(self, track: _Track, others: list[_Track]) -> bool:
        """Whether another count may be that of a loop around this one."""
        not_around = [
            nest.outer for nest in self._nests.values() if nest.inner is track and nest.is_refuted
        ]
        return any(
            other.count.sure and other.begun < track.begun and other not in not_around
            for other in others
        )


def plausible(told_s: float, now_s: float) -> float:
    """Return the time given by a slot if it is plausible, else now."""
    return told_s if now_s - MOST_AGE_S <= told_s <= now_s else now_s


def _key(count: Count) -> _Key:
    return count.words, count.level, count.total


def _may_nest(outer: Count, inner: Count) -> bool:
    if inner.level is not Level.STEP or not inner.sure:
        return False
    return outer.level is Level.EPOCH or (outer.level is Level.STEP and outer.bar and inner.bar)


def _keep_latest(kept: dict[Any, Any], most: int) -> None:
    """Drop the entries not seen for longest, if there are too many."""
    for key in list(kept)[: max(0, len(kept) - most)]:
        del kept[key]


def _has_just_ended(believed: _Track | _Nest, now_s: float) -> bool:
    if now_s - believed.growth.at_s > FINISHED_S:
        return False
    if isinstance(believed, _Nest):
        return believed.is_likely and believed.growth.step >= believed.total
    return believed.is_finished and not believed.repeats


def _record(believed: _Track | _Nest) -> Record:
    growth = believed.growth
    if isinstance(believed, _Nest):
        skipped, total = 0, believed.total
        at_s = max(believed.outer.last_s, believed.inner.last_s)
    else:
        skipped, total, at_s = believed.skipped, believed.total, believed.last_s
    return Record(
        step=growth.step - skipped,
        total=total,
        at_s=round(at_s, 3),
        first_step=max(0, growth.first_step - skipped),
        first_s=round(min(growth.first_s, at_s), 3),
        new_step_s=round(min(growth.first_s, at_s), 3),
    )
