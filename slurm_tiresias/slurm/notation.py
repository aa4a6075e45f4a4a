"""Parse values as Slurm prints them: times, spans, memory, GPU counts, hostlists, ``key=value``.

Each function parses one value and raises ``SlurmAnswerError`` if it is malformed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import TypeVar

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import ANY_TYPE

UNKNOWN_TIMES = frozenset({"N/A", "NONE", "Unknown", "None", ""})
"""What the commands print for an unknown time."""

UNLIMITED_SPANS = frozenset({"UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID", "N/A"})

NOTHING = frozenset({"(null)", "N/A", ""})
"""What the commands print for missing text."""

_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)[nc]?", re.ASCII)
_COUNT = re.compile(r"\+?0*(\d{1,18})([kmgtp]?)(b|ib)?", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?:[\w.-]|\[[\d,-]+\])+", re.ASCII)
"""One or several hosts between commas: ``n7``, ``n[1-3,7]``, ``rack[1-2]n[1-3,7]``."""
_HOSTLIST = re.compile(rf"{_HOST.pattern}(?:,{_HOST.pattern})*", re.ASCII)

MOST_DIGITS = 18
"""No number that Slurm prints is longer."""

MOST_HOSTS = 1_000_000
"""Per hostlist, because a short one may stand for more names than fit into memory."""

_MEBIBYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

MOST_GPUS = 1_000_000
"""No cluster has more. Slurm's totals of larger counts wrap around at 2**64."""

Value = TypeVar("Value")


def unreadable(what: str, text: str) -> SlurmAnswerError:
    """Return the error for a malformed answer."""
    return SlurmAnswerError(
        f"Slurm's answer has {what} that cannot be parsed: {text[:80]!r}",
        "check that Slurm's commands and slurmctld are of one release, 22.05 or newer",
    )


def present(text: str) -> str:
    """Return the text, or "" if it is one of Slurm's words for "nothing"."""
    return "" if text in NOTHING else text


def whole(text: str) -> int:
    """Parse a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise unreadable("a number", text)
    return int(text)


def epoch(text: str) -> float | None:
    """Parse a time, printed as seconds since the epoch; None if unknown."""
    return None if text in UNKNOWN_TIMES else float(whole(text))


def known_epoch(text: str) -> float:
    """Parse a time that must be known."""
    at_s = epoch(text)
    if at_s is None:
        raise unreadable("a time", text)
    return at_s


def span(text: str) -> float | None:
    """Return ``[days-][hours:]minutes:seconds`` in seconds; None if unlimited or not set."""
    if text in UNLIMITED_SPANS:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        raise unreadable("a time span", text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def mebibytes(text: str) -> int:
    """Parse memory with its unit (``500M``, ``4G``; MiB if none), rounded up to MiB."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise unreadable("an amount of memory", text)
    return int(-(-float(match[1]) * _MEBIBYTES[match[2]] // 1))


@lru_cache(maxsize=4096)
def node_names(hostlist: str) -> tuple[str, ...]:
    """Expand a hostlist such as ``n[1-3,7]``, in its order; empty for no list."""
    if hostlist in NOTHING:
        return ()
    if not _HOSTLIST.fullmatch(hostlist):
        raise unreadable("a node list", hostlist)
    names: list[str] = []
    for host in _HOST.findall(hostlist):
        dimensions = _dimensions(host)
        if len(names) + math.prod(map(len, dimensions)) > MOST_HOSTS:
            raise unreadable("a node list", hostlist)
        names += map("".join, product(*dimensions))
    return tuple(dict.fromkeys(names))


def _dimensions(hosts: str) -> Sequence[Sequence[str]]:
    """Split ``rack[1-2]n[1-3,7]`` into its parts: text, and the numbers in each bracket."""
    dimensions: list[Sequence[str]] = []
    for at, part in enumerate(re.split(r"[\[\]]", hosts)):
        dimensions.append(_numbers(part, hosts) if at % 2 else (part,))
        if math.prod(map(len, dimensions)) > MOST_HOSTS:
            raise unreadable("a node list", hosts)
    return dimensions


def _numbers(ranges: str, hosts: str) -> Sequence[str]:
    """Expand ``01-03,7`` to ``01``, ``02``, ``03``, ``7``."""
    found: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        lowest, highest = whole(first), whole(last if dash else first)
        if highest < lowest or highest - lowest + len(found) >= MOST_HOSTS:
            raise unreadable("a node list", hosts)
        found += (str(number).zfill(len(first)) for number in range(lowest, highest + 1))
    return found


@lru_cache(maxsize=4096)
def gpus(text: str) -> Mapping[str, int]:
    """Parse GPUs by type, in any spelling of any supported release.

    ``gres:gpu:4``, ``gres/gpu:4``, ``gres/gpu=4``, ``gpu:a100:4(S:0-1)``, ``gpu:2(IDX:0-1)``,
    ``cpu=4,gres/gpu=4,gres/gpu:a100=4``. If a total accompanies counts by type, as in the last, it
    is not counted again. Other resources in the list are skipped.
    """
    counts: dict[str, int] = {}
    for kind, count in _gpus_listed(text):
        counts[kind] = counts.get(kind, 0) + count
    return gpus_by_type(counts, totals_stand_beside="=" in text)


@lru_cache(maxsize=4096)
def requested_gpus(text: str) -> Mapping[str, int]:
    """Parse the GPUs of one option of a request, by type.

    Of several counts for one type Slurm takes the last that is not 0 (``gres_job_state_validate``
    in gres.c): ``--gres=gpu:2,gpu:1`` gets one GPU.
    """
    return {kind: count for kind, count in _gpus_listed(text) if count}


def _gpus_listed(text: str) -> Iterator[tuple[str, int]]:
    """Yield type and count of each entry for GPUs in a list."""
    if text in NOTHING:
        return
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        bare = part.strip().removeprefix("gres/").removeprefix("gres:")
        if bare == "gpu" or bare.startswith(("gpu:", "gpu=")):
            yield _kind_and_count(bare)


@lru_cache(maxsize=4096)
def has_other_gres(text: str) -> bool:
    """Whether resources other than GPUs and CPUs are requested: ``gres:nvme:1``, or
    ``gres:gpu:1,gres:shard:2``. Since 26.05 a task's CPUs are listed here too (``cpu:4``)."""
    bare = (part.removeprefix("gres/").removeprefix("gres:") for part in present(text).split(","))
    return any(re.split("[:=(]", part)[0] not in ("", "gpu", "cpu") for part in bare)


def has_several_types(text: str) -> bool:
    """Whether GPUs of more than one type are requested; False if the text cannot be parsed."""
    try:
        return len(requested_gpus(text)) > 1
    except SlurmAnswerError:
        return False


@lru_cache(maxsize=4096)
def gpu_weights(text: str) -> Mapping[str, float]:
    """Parse the weights of GPUs in ``CPU=1.0,Mem=0.25G,GRES/gpu=2,GRES/gpu:a100=4``, by type."""
    found = re.finditer(r"(?:^|,)gres/gpu(?::([^=,]+))?=(\d{1,9}(?:\.\d{1,9})?)", text, re.I | re.A)
    return {match[1] or ANY_TYPE: float(match[2]) for match in found}


def gpus_by_type(counts: Mapping[str, int], *, totals_stand_beside: bool) -> Mapping[str, int]:
    """Return GPUs by type without zeros. With ``totals_stand_beside`` the ``ANY_TYPE`` count is a
    total over all types, which are subtracted from it."""
    typed = {kind: count for kind, count in counts.items() if count and kind != ANY_TYPE}
    untyped = counts.get(ANY_TYPE, 0)
    if totals_stand_beside:
        untyped = max(untyped - sum(typed.values()), 0)
    return {**typed, ANY_TYPE: untyped} if untyped else typed


def _kind_and_count(gres: str) -> tuple[str, int]:
    """Parse ``gpu``, ``gpu:4``, ``gpu:a100``, ``gpu:a100:4`` or ``gpu:a100=4``.

    As in Slurm (``_get_next_gres`` in gres.c), a word that is not a count is a type. Numbers that
    are too long and words with a leading minus are refused: some releases read the latter as a
    type, others as a count near 2**64.
    """
    match re.split("[:=]", gres)[1:]:
        case []:
            return ANY_TYPE, 1
        case [word] if (count := _count(word)) is not None:
            return ANY_TYPE, count
        case [kind] if kind and not kind.startswith("-") and not kind.isdecimal():
            return kind, 1
        case [kind, word] if kind and not kind.startswith("-"):
            if (count := _count(word)) is not None:
                return kind, count
    raise unreadable("a GPU count", gres)


def _count(word: str) -> int | None:
    """Parse ``4``, ``+4``, ``0004``, ``1k``, ``1KiB`` or ``1kB`` (``suffix_mult`` in
    slurm_protocol_defs.c); None if the word is not a count."""
    match = _COUNT.fullmatch(word)
    if match is None or (match[3] and not match[2]):
        return None
    thousand = 1000 if match[3] in ("b", "B") else 1024
    count = int(match[1]) * int(thousand ** _POWERS[match[2].lower()])
    if count > MOST_GPUS:
        raise unreadable("a GPU count", word)
    return count


@lru_cache(maxsize=4096)
def tres(text: str) -> Mapping[str, str]:
    """Parse ``cpu=3,mem=300M,node=2`` into a mapping."""
    if text in NOTHING:
        return {}
    pairs = (part.partition("=") for part in text.split(","))
    return {name: value for name, _, value in pairs}


def tres_value(text: str, name: str, read: Callable[[str], Value]) -> Value | None:
    """Return one entry of a TRES string, parsed by ``read``; None if not listed."""
    value = tres(text).get(name)
    return None if value is None else read(value)


def attributes(line: str) -> dict[str, str]:
    """Return the ``Key=value`` words of a line; the first of equal keys wins.

    Words without ``=`` (the rest of a value with spaces) are skipped.
    """
    found: dict[str, str] = {}
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found
