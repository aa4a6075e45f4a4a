"""The collected traffic file of what a job sent, and the skew derived from it.

The layout is that of ``spank/monitor/traffic.h``. The file was written as the job's own user, so
everything in it is checked before use.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.profiler.skew import Skew

FILE_BYTES = 86016
OCTAVES = 48
SLOTS = 32
LISTS = 64

_MAGIC = 0x4652545345524954
_HEADER = struct.Struct("<QIIIIIIIIII2Q")
_RIGHT_HEADER = (_MAGIC, 2, FILE_BYTES, 64, 26112, 2, OCTAVES, 544, SLOTS, 512, LISTS, 0, 0)
_OCTAVE = struct.Struct(f"<{4 + 2 * SLOTS}Q")
_SECTION_BYTES = OCTAVES * _OCTAVE.size
_END_OF_SECTIONS = _HEADER.size + 2 * _SECTION_BYTES
_LISTS_TAKEN = struct.Struct("<Q")
_LIST = struct.Struct(f"<{2 * SLOTS}Q")
_START_OF_LISTS = FILE_BYTES - LISTS * _LIST.size
_LARGEST_BYTES = (1 << OCTAVES) - 1
_MOST_TOTAL_BYTES = 1 << 62
"""More than any job sends: a larger sum is forged, and would not fit the store."""

LEAST_ROUNDS = 3
"""Sizes that were sent fewer times say nothing about iterations."""

_CONSISTENT = 0.95
"""The share of bytes that must fit whole iterations for the number of iterations to count."""

LARGEST_CHUNK_BYTES = 4 << 20
"""The largest chunk, a power of two, into which libraries cut large tensors: 1 MiB in Gloo's
collectives, 128 KiB to 4 MiB in NCCL's transports."""

_LEAST_CHUNKS = 4
_FRAMING_BYTES = 64
_CANDIDATES = 64
_ONE_OFF = 2
_ROUNDS_TO_KNOW_ONE_OFFS = 10


class TrafficFileError(TiresiasError):
    """A collected file is not in the format that the monitor writes."""


@dataclass(frozen=True, slots=True)
class Octave:
    """Messages of one octave of sizes: the count of each listed size, and sums of the rest."""

    listed: Counter[int]
    unlisted_messages: int
    unlisted_bytes: int
    unlisted_largest_bytes: int


@dataclass(frozen=True, slots=True)
class Section:
    """All messages of one kind by size; ``listed`` counts messages by their size in bytes."""

    octaves: tuple[Octave, ...]

    @property
    def listed(self) -> dict[int, int]:
        counted = [pair for octave in self.octaves for pair in octave.listed.items()]
        return {size: count for size, count in counted if count}

    @property
    def total_bytes(self) -> int:
        unlisted = sum(octave.unlisted_bytes for octave in self.octaves)
        return unlisted + sum(size * count for size, count in self.listed.items())


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the tasks of one run sent on one node."""

    messages: Section
    """Sends on sockets and through RDMA verbs."""
    collectives: Section
    """Buffers handed to NCCL."""


def parse(content: bytes) -> Traffic:
    """Parse a collected file; raise ``TrafficFileError``. A file of zeros is valid and empty."""
    if len(content) != FILE_BYTES:
        raise _fault(f"it has {len(content):,} bytes instead of {FILE_BYTES:,}")
    if not any(content):
        return Traffic(Section(()), Section(()))
    if _HEADER.unpack_from(content) != _RIGHT_HEADER:
        raise _fault("its header is not that of this version")
    if any(content[_END_OF_SECTIONS + _LISTS_TAKEN.size : _START_OF_LISTS]):
        raise _fault("it has data after its last section")
    sections = content[_HEADER.size : _END_OF_SECTIONS]
    messages = _section(sections[:_SECTION_BYTES], _in_lists(content))
    return Traffic(messages, _section(sections[_SECTION_BYTES:], {}))


def _fault(what: str) -> TrafficFileError:
    return TrafficFileError(
        f"It is not a traffic file: {what}", "Nothing needs to be done; the job was not profiled"
    )


def _in_lists(content: bytes) -> Counter[int]:
    """Sum the counts that threads kept in their own lists, in addition to the shared sections."""
    (taken,) = _LISTS_TAKEN.unpack_from(content, _END_OF_SECTIONS)
    end = _START_OF_LISTS + taken * _LIST.size
    if taken > LISTS or any(content[end:]):
        raise _fault("it has data in lists that are not in use")
    counts: Counter[int] = Counter()
    for words in _LIST.iter_unpack(content[_START_OF_LISTS:end]):
        counts.update(_slots(words))
    if any(size > _LARGEST_BYTES for size in counts):
        raise _fault("it lists a size larger than any")
    return counts


def _section(content: bytes, in_lists: Mapping[int, int]) -> Section:
    octaves = [_octave(n, words) for n, words in enumerate(_OCTAVE.iter_unpack(content))]
    for size, count in in_lists.items():
        octaves[size.bit_length() - 1].listed[size] += count
    section = Section(tuple(octaves))
    if section.total_bytes > _MOST_TOTAL_BYTES:
        raise _fault("it claims more bytes than any job sends")
    return section


def _octave(number: int, words: Sequence[int]) -> Octave:
    messages, total_bytes, largest_bytes, reserved = words[:4]
    listed = _slots(words[4:])
    misplaced = largest_bytes and largest_bytes >> number != 1
    unexplained = (messages or total_bytes) and not largest_bytes
    # A killed task may have counted a message but not yet its bytes, never the reverse.
    if misplaced or unexplained or total_bytes > messages * largest_bytes:
        raise _fault("its sums contradict each other")
    if reserved or any(size >> number != 1 for size in listed):
        raise _fault("its sizes contradict each other")
    return Octave(listed, messages, total_bytes, largest_bytes)


def _slots(words: Sequence[int]) -> Counter[int]:
    """Return the count of each size; 0 if a task died between taking a slot and counting."""
    pairs = zip(words[::2], words[1::2], strict=True)
    taken = [(size, count) for size, count in pairs if size or count]
    counts = Counter(dict(taken))
    if 0 in counts or len(counts) < len(taken):
        raise _fault("its sizes contradict each other")
    return counts


@dataclass(frozen=True, slots=True)
class Sent:
    """What a section shows of the job's iterations; ``sent_bytes`` is their total."""

    skew: Skew
    rounds: int
    """Iterations times the node's tasks times the peers of each, since all send alike."""
    sent_bytes: int


def sent_in(section: Section) -> Sent | None:
    """Return the skew of what each iteration sent; None if nothing was sent repeatedly.

    Every iteration sends each tensor once to each peer. So the number of iterations is the largest
    number that divides the counts of nearly all bytes; a size that three tensors share is counted
    three times per iteration. Messages sent only at the start are left out. None is also returned
    if a library cut the tensors up, because their sizes are then lost.
    """
    listed = section.listed
    rounds = _rounds(listed)
    if rounds < LEAST_ROUNDS:
        return None
    recurring = {size: count for size, count in listed.items() if 2 * count >= rounds}
    unlisted = [octave for octave in section.octaves if 2 * octave.unlisted_messages >= rounds]
    sent_bytes = sum(size * count for size, count in recurring.items())
    sent_bytes += sum(octave.unlisted_bytes for octave in unlisted)
    largest_bytes = max([*recurring, *(octave.unlisted_largest_bytes for octave in unlisted)])
    messages = sum(recurring.values()) + sum(octave.unlisted_messages for octave in unlisted)
    # The largest messages look like chunks of larger ones, with a library's framing.
    over_bytes = largest_bytes - (1 << largest_bytes.bit_length() - 1)
    small = largest_bytes <= LARGEST_CHUNK_BYTES + _FRAMING_BYTES
    many = listed.get(largest_bytes, 0) / rounds >= _LEAST_CHUNKS
    if small and many and over_bytes <= _FRAMING_BYTES:
        return None
    each_bytes = max(largest_bytes, round(sent_bytes / rounds))
    return Sent(Skew(largest_bytes, each_bytes, round(messages / rounds)), rounds, sent_bytes)


def _rounds(listed: Mapping[int, int]) -> int:
    """Return the largest number of iterations that explains the counts of all sizes; 0 if none."""
    heaviest = sorted(listed, key=lambda size: size * listed[size], reverse=True)[:_CANDIDATES]
    for rounds in sorted({listed[size] for size in heaviest}, reverse=True):
        least = _ONE_OFF + 1 if rounds >= _ROUNDS_TO_KNOW_ONE_OFFS else 0
        counted = [(size, count) for size, count in listed.items() if count >= least]
        whole = sum(size * count for size, count in counted if _is_multiple(count, rounds))
        if whole >= _CONSISTENT * sum(size * count for size, count in counted):
            return rounds
    return 0


def _is_multiple(count: int, rounds: int) -> bool:
    """Whether a size came once or more in each iteration; the last iteration may be incomplete."""
    times = round(count / rounds)
    leeway = max(1, count // 20) if count > LEAST_ROUNDS else 0
    return times > 0 and abs(count - times * rounds) <= leeway
