"""Slurm's small spellings: times, spans, memory, GPU counts, hostlists, ``key=value`` text.

Each function takes one value as Slurm prints it and raises ``SlurmAnswerError`` on anything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import ANY_TYPE

UNKNOWN_TIMES = frozenset({"N/A", "NONE", "Unknown", "None", ""})
"""What the commands print for a time that has not come."""

UNLIMITED_SPANS = frozenset({"UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID", "N/A"})

NOTHING = frozenset({"(null)", "N/A", ""})
"""What the commands print for text that is not there."""

_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)[nc]?", re.ASCII)
_COUNT = re.compile(r"(\d{1,9})([KMG]?)", re.ASCII)
_HOSTLIST = re.compile(r"[\w.,\[\]-]+", re.ASCII)
_HOSTS = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+", re.ASCII)
"""One or several hosts between commas: ``n7``, ``n[1-3,7]``."""
_NUMBERS = re.compile(r"\[([^\[\]]*)\](\d*)", re.ASCII)

MOST_DIGITS = 18
"""No number of Slurm's is longer."""

MOST_HOSTS = 1_000_000
"""Of one list: a few letters may stand for more names than there is memory."""

_MEBIBYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_THOUSANDS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}

Value = TypeVar("Value")


def unreadable(what: str, text: str) -> SlurmAnswerError:
    """The error for an answer that does not look as it should."""
    return SlurmAnswerError(
        f"Slurm's answer has {what} that cannot be read: {text[:80]!r}",
        "check that Slurm's commands and slurmctld are of one release, 22.05 or newer",
    )


def present(text: str) -> str:
    """The text, or "" where Slurm prints a word for nothing."""
    return "" if text in NOTHING else text


def whole(text: str) -> int:
    """A whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise unreadable("a number", text)
    return int(text)


def epoch(text: str) -> float | None:
    """A point in time, printed as seconds since the epoch; None where it is not known."""
    return None if text in UNKNOWN_TIMES else float(whole(text))


def known_epoch(text: str) -> float:
    """A point in time that must be known."""
    at_s = epoch(text)
    if at_s is None:
        raise unreadable("a time", text)
    return at_s


def span(text: str) -> float | None:
    """``[days-][hours:]minutes:seconds`` in seconds; None where it is unlimited or not set."""
    if text in UNLIMITED_SPANS:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        raise unreadable("a time span", text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def mebibytes(text: str) -> int:
    """Memory with its unit (``500M``, ``4G``; without one: MiB), rounded up."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise unreadable("an amount of memory", text)
    return int(-(-float(match[1]) * _MEBIBYTES[match[2]] // 1))


@lru_cache(maxsize=4096)
def node_names(hostlist: str) -> tuple[str, ...]:
    """The names in Slurm's hostlist ``n[1-3,7]``, in its order; empty for no list."""
    if hostlist in NOTHING:
        return ()
    if (
        not _HOSTLIST.fullmatch(hostlist)
        or sum(map(_host_count, _HOSTS.findall(hostlist))) > MOST_HOSTS
    ):
        raise unreadable("a node list", hostlist)
    try:
        return tuple(str(name) for name in NodeSet(hostlist, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError):
        raise unreadable("a node list", hostlist) from None


def _host_count(hosts: str) -> int:
    """For how many names ``rack[1-2]n[1-3,7]`` stands; at most, where digits follow a bracket.

    To ClusterShell those are the last digits of each number, and the range is so much wider.
    """
    return math.prod(
        sum(map(_range_width, numbers.split(","))) * 10 ** len(behind)
        for numbers, behind in _NUMBERS.findall(hosts)
    )


def _range_width(numbers: str) -> int:
    first, _, last = numbers.partition("-")
    return max(0, whole(last or first) - whole(first)) + 1


@lru_cache(maxsize=4096)
def gpus(text: str) -> Mapping[str, int]:
    """GPUs by type, in any spelling that Slurm has had for them.

    ``gres:gpu:4``, ``gres/gpu:4``, ``gres/gpu=4``, ``gpu:a100:4(S:0-1)``, ``gpu:2(IDX:0-1)``,
    ``cpu=4,gres/gpu=4,gres/gpu:a100=4``. Where a total stands beside counts by type, as in the
    last, the total is not counted again. Other resources in the list are passed over.
    """
    if text in NOTHING:
        return {}
    typed: dict[str, int] = {}
    untyped = 0
    totals_stand_beside = "=" in text
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        bare = part.strip().removeprefix("gres/").removeprefix("gres:")
        if bare != "gpu" and not bare.startswith(("gpu:", "gpu=")):
            continue
        kind, count = _kind_and_count(bare)
        if kind == ANY_TYPE:
            untyped += count
        else:
            typed[kind] = typed.get(kind, 0) + count
    if totals_stand_beside:
        untyped = max(untyped - sum(typed.values()), 0)
    counts = typed | ({ANY_TYPE: untyped} if untyped else {})
    return {kind: count for kind, count in counts.items() if count}


def _kind_and_count(gres: str) -> tuple[str, int]:
    """``gpu``, ``gpu:4``, ``gpu:a100``, ``gpu:a100:4`` or ``gpu:a100=4``."""
    match re.split("[:=]", gres)[1:]:
        case []:
            return ANY_TYPE, 1
        case [word] if _COUNT.fullmatch(word):
            return ANY_TYPE, _count(word)
        case [kind] if kind:
            return kind, 1
        case [kind, word] if kind:
            return kind, _count(word)
    raise unreadable("a GPU count", gres)


def _count(text: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise unreadable("a GPU count", text)
    return int(match[1]) * _THOUSANDS[match[2]]


@lru_cache(maxsize=4096)
def tres(text: str) -> Mapping[str, str]:
    """``cpu=3,mem=300M,node=2`` as a mapping; empty for nothing."""
    if text in NOTHING:
        return {}
    pairs = (part.partition("=") for part in text.split(","))
    return {name: value for name, _, value in pairs}


def tres_value(text: str, name: str, read: Callable[[str], Value]) -> Value | None:
    """One entry of a TRES string, read by ``read``; None where it is not listed."""
    value = tres(text).get(name)
    return None if value is None else read(value)


def attributes(line: str) -> dict[str, str]:
    """The ``Key=value`` words of a line; of a key that comes twice the first counts.

    Words without ``=`` (the rest of a value with spaces) are passed over.
    """
    found: dict[str, str] = {}
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found
