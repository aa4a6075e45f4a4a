"""What a job was seen to send: the collected traffic file, and the skew that follows from it.

The layout is that of ``spank/monitor/traffic.h``. The file was written by the job's own user, so
nothing in it is believed before it has been checked.
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
"""More than any job sends; beyond it the sum is a forgery, and too long for the store."""

LEAST_ROUNDS = 3
"""What was sent fewer times than this may have been anything."""

_CONSISTENT = 0.95
"""The share of the bytes that must come in whole iterations for their number to be believed."""

LARGEST_CHUNK_BYTES = 4 << 20
"""Libraries that cut large tensors up do so at a power of two of at most this: Gloo's collectives
at 1 MiB, NCCL's transports between 128 KiB and 4 MiB."""

_LEAST_CHUNKS = 4
_FRAMING_BYTES = 64
_CANDIDATES = 64
_ONE_OFF = 2
_ROUNDS_TO_KNOW_ONE_OFFS = 10


class TrafficFileError(TiresiasError):
    """A collected file is not what the monitor writes."""


@dataclass(frozen=True, slots=True)
class Octave:
    """Sizes of one octave: those listed with how often each was sent, and the rest in sum."""

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
    """Sends on sockets and of RDMA verbs."""
    collectives: Section
    """What was handed to NCCL."""


def parse(content: bytes) -> Traffic:
    """Read a collected file; raises ``TrafficFileError``. A file of zeros is a valid empty one."""
    if len(content) != FILE_BYTES:
        raise _fault(f"it has {len(content):,} bytes instead of {FILE_BYTES:,}")
    if not any(content):
        return Traffic(Section(()), Section(()))
    if _HEADER.unpack_from(content) != _RIGHT_HEADER:
        raise _fault("its header is not that of this version")
    if any(content[_END_OF_SECTIONS + _LISTS_TAKEN.size : _START_OF_LISTS]):
        raise _fault("it has data behind its last section")
    sections = content[_HEADER.size : _END_OF_SECTIONS]
    messages = _section(sections[:_SECTION_BYTES], _in_lists(content))
    return Traffic(messages, _section(sections[_SECTION_BYTES:], {}))


def _fault(what: str) -> TrafficFileError:
    return TrafficFileError(
        f"It is no traffic file: {what}", "Nothing needs to be done; the job was not profiled"
    )


def _in_lists(content: bytes) -> Counter[int]:
    """What threads counted in lists of their own, in addition to what they have in common."""
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
    # A killed task may have counted a message and not yet its bytes, never the other way round.
    if misplaced or unexplained or total_bytes > messages * largest_bytes:
        raise _fault("its sums contradict each other")
    if reserved or any(size >> number != 1 for size in listed):
        raise _fault("its sizes contradict each other")
    return Octave(listed, messages, total_bytes, largest_bytes)


def _slots(words: Sequence[int]) -> Counter[int]:
    """How often each size was sent: never, where a task died between taking a slot and counting."""
    pairs = zip(words[::2], words[1::2], strict=True)
    taken = [(size, count) for size, count in pairs if size or count]
    counts = Counter(dict(taken))
    if 0 in counts or len(counts) < len(taken):
        raise _fault("its sizes contradict each other")
    return counts


@dataclass(frozen=True, slots=True)
class Sent:
    """What a section says of the job's iterations. ``sent_bytes`` counts all of them."""

    skew: Skew
    rounds: int
    """Iterations seen, times the tasks of the node and the peers of each: all send alike."""
    sent_bytes: int


def sent_in(section: Section) -> Sent | None:
    """The skew of what was sent in each iteration; None where nothing was sent again and again.

    Every iteration sends each tensor once (to each peer). So the number of iterations is the
    largest that the counts of nearly all bytes are multiples of, a tensor of which the model has
    three of the same size being counted three times. What came only at the start is left out.
    Where a library cut the tensors up, their sizes are lost, and so is what they would have said.
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
    # The largest messages look like pieces of larger ones, with a library's framing.
    over_bytes = largest_bytes - (1 << largest_bytes.bit_length() - 1)
    small = largest_bytes <= LARGEST_CHUNK_BYTES + _FRAMING_BYTES
    many = listed.get(largest_bytes, 0) / rounds >= _LEAST_CHUNKS
    if small and many and over_bytes <= _FRAMING_BYTES:
        return None
    each_bytes = max(largest_bytes, round(sent_bytes / rounds))
    return Sent(Skew(largest_bytes, each_bytes, round(messages / rounds)), rounds, sent_bytes)


def _rounds(listed: Mapping[int, int]) -> int:
    """The largest number of iterations that explains how often each size was sent; 0 if none."""
    heaviest = sorted(listed, key=lambda size: size * listed[size], reverse=True)[:_CANDIDATES]
    for rounds in sorted({listed[size] for size in heaviest}, reverse=True):
        least = _ONE_OFF + 1 if rounds >= _ROUNDS_TO_KNOW_ONE_OFFS else 0
        counted = [(size, count) for size, count in listed.items() if count >= least]
        whole = sum(size * count for size, count in counted if _is_multiple(count, rounds))
        if whole >= _CONSISTENT * sum(size * count for size, count in counted):
            return rounds
    return 0


def _is_multiple(count: int, rounds: int) -> bool:
    """Whether a size came once or several times in each iteration; the last may be cut short."""
    times = round(count / rounds)
    leeway = max(1, count // 20) if count > LEAST_ROUNDS else 0
    return times > 0 and abs(count - times * rounds) <= leeway
