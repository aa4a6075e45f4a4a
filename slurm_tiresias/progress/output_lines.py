"""What one printed line shows about a program's progress.

The lines are users' text. Each regular expression here takes at most quadratic time, on a line of
a few hundred characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The loop that a count belongs to, the outermost first."""

    AROUND = 0
    """A loop around whole trainings, such as folds."""
    EPOCH = 1
    STEP = 2


@dataclass(frozen=True)
class Count:
    """``step`` of ``total``, as a line has it.

    ``words`` are the words before it, which identify the count. ``sure`` is False for numbers that
    need not be progress, such as ``[3/8]``. ``done`` says that ``step`` of them are complete: a
    line ``Epoch 3/90`` without a result is printed when the third epoch begins.
    """

    words: str
    level: Level
    step: int
    total: int
    sure: bool = True
    bar: bool = False
    done: bool = True


MOST_CHARACTERS = 512

_LEVELS = {
    **dict.fromkeys(("fold", "trial", "round", "stage", "phase"), Level.AROUND),
    **dict.fromkeys(("epoch", "ep"), Level.EPOCH),
    **dict.fromkeys(
        ("step", "iteration", "iter", "it", "batch", "batche", "update", "sample"), Level.STEP
    ),
    **dict.fromkeys(("train", "training", "progres", "progress"), Level.STEP),
}
"""The words that name a loop, without the s of the plural."""

_ELSE = re.compile(
    r"(?i)\b(sanity|val|valid|validat\w+|eval\w*|test\w*|predict\w*|infer\w*|generat\w*|download\w*"
    r"|upload\w*|load\w*|read|reading|fetch\w*|resolv\w+|extract\w*|unpack\w*|sav\w+|writ\w+|copy\w*"
    r"|shards?|map|filter|tokeniz\w+|preprocess\w*|prepar\w+|cach\w+|index\w*|warm\w*up|calibrat\w+"
    r"|quantiz\w+|compil\w+|build\w*|link\w+|install\w*|collect\w*"
    r"|group\w+|casting|pack\w+|truncat\w+|convert\w*|adding|applying|creating|parsing|scanning"
    r"|verify\w+|encod\w+|decod\w+)\b"
)
"""Words for counts that are not part of the training."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[A-Za-z]|[A-Z])")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_PAIR = re.compile(
    r"(?<![\w./-])(\d{1,15})(?:\s{0,12}/\s{0,12}|\s{1,12}of\s{1,12})(\d{1,15})"
    r"(?![\w%/]|\.\d|-\d)"
)
_OTHER_UNIT = re.compile(
    r"(?i)\s?(?:[kmgt]i?b|b|bytes|nodes?|ranks?|gpus?|workers?|files?|shards?)\b"
)
_TQDM_BEFORE = re.compile(r"\d{1,3}%\|[^|]*\|\s*$")
_TQDM_AFTER = re.compile(r"\s?\[[\d:]{4,}<[^\]]*")
_BYTE_RATE = re.compile(r"[kKMGT]?i?B/s")
_DRAWN_BEFORE = re.compile(r"[━─╸╺]{3,}\s*$")
_KERAS_AFTER = re.compile(r"\s{1,2}(?:\[[=>.]{3,}\]|[━─╸╺]{2,}|-\s{1,2}(?:ETA:|\d+m?s))")
_UNIT_AFTER = re.compile(r"[\s\])]{0,3}([A-Za-z]+)")
_BUILD_AFTER = re.compile(
    r"[\s\])]{0,3}(Building|Compiling|Linking|Generating|Installing|\S*(?:\+\+|cc|clang)(?!\S))"
)
_INSIDE = re.compile(
    r"(?i)\b(?:epochs?|ep|folds?|trials?|rounds?|stages?|phases?)"
    r"(?:\(\w{0,12}\))?[\W_]{0,4}\d+(?!\d*%|[\d.]*\.\d)"
)
"""An epoch or similar, in a line that does not give the total number."""

_IN_PARENTHESES = re.compile(r"\([^()]{0,24}\)")
_LAST_WORD = re.compile(r"([A-Za-z]+)[^A-Za-z\d]{0,12}$")
_NUMBER = re.compile(r"[\d.]+(?:e[+-]?\d+)?")
_NO_LETTER = re.compile(r"[^a-z]+")
_LOG_PREFIX = re.compile(r"(?i)(?:info|debug|warning|root|main|utc|[^a-z])*")
_PERCENT = re.compile(r"(?<![\w.])(\d{1,3})(?:\.(\d{1,2}))?\s?%(?!\|)")
_PERCENT_BY_NAME = re.compile(r"(?i)\b(progress|completed?|done|finished|training)\b")
_PERCENT_ELSE = re.compile(r"(?i)\b(acc\w*|util\w*|mem\w*|cpu|gpu|loss|error|top\d?)\b")


def counts_in(text: bytes) -> tuple[Count, ...]:
    """Return the counts that may be those of a training, the outer one first; at most two."""
    line = _ESCAPES.sub("", text[:MOST_CHARACTERS].decode(errors="replace"))
    line = _CONTROLS.sub(" ", line)
    pairs = list(_PAIR.finditer(line))
    if not pairs:
        return _percentage(line)
    counts: list[Count] = []
    before_s = 0
    for index, pair in enumerate(pairs[:4]):
        before = line[before_s : pair.start()]
        before_s = pair.end()
        after = line[pair.end() : pairs[index + 1].start() if index + 1 < len(pairs) else None]
        if _ELSE.search(before) or _INSIDE.search(before):
            return ()
        count = _count(before, pair, after)
        if count is not None:
            counts.append(count)
    return _nested(counts)


def _nested(counts: list[Count]) -> tuple[Count, ...]:
    """Return the outermost count, and the innermost one if it is of another loop."""
    if not counts:
        return ()
    outer = min(counts, key=lambda count: count.level)
    inner = max(counts, key=lambda count: count.level)
    if inner.level <= outer.level:
        return (outer,)
    begun = Count(outer.words, outer.level, outer.step, outer.total, done=False)
    return begun, inner


def _count(before: str, pair: re.Match[str], after: str) -> Count | None:
    step, total = int(pair[1]), int(pair[2])
    if total == 0 or step > total or _OTHER_UNIT.match(after):
        return None
    drawn = _TQDM_BEFORE.search(before) or _DRAWN_BEFORE.search(before)
    description = before[: drawn.start()] if drawn else before
    words = _words(description)
    rate = _TQDM_AFTER.match(after)
    if drawn or rate:
        if rate and _BYTE_RATE.search(rate[0]):
            return None
        level = _level_of(description)
        return Count(words, Level.STEP if level is None else level, step, total, bar=True)
    if _KERAS_AFTER.match(after) and not words:
        return Count(words, Level.STEP, step, total, bar=True)
    return _plain(description, words, step, total, after)


def _plain(description: str, words: str, step: int, total: int, after: str) -> Count | None:
    level = _level_of(description)
    if level is None and (unit := _UNIT_AFTER.match(after)):
        level = _LEVELS.get(unit[1].lower().removesuffix("s"))
    if level is not None:
        # A step is short, so it does not matter whether the line means its beginning or its end.
        done = level is Level.STEP or any(character.isdigit() for character in after)
        return Count(words, level, step, total, done=done)
    bare = description.endswith("[") and after.startswith("]")
    if bare and _LOG_PREFIX.fullmatch(description) and not _BUILD_AFTER.match(after):
        return Count("", Level.STEP, step, total, sure=False)
    return None


def _level_of(description: str) -> Level | None:
    """Return the loop that the last word names."""
    word = _LAST_WORD.search(_IN_PARENTHESES.sub(" ", description)[-64:])
    return _LEVELS.get(word[1].lower().removesuffix("s")) if word else None


def _words(description: str) -> str:
    without_numbers = _NUMBER.sub(" ", description.lower())
    return _NO_LETTER.sub(" ", without_numbers).strip()[-64:]


def _percentage(line: str) -> tuple[Count, ...]:
    found = _PERCENT.search(line)
    named = found and _PERCENT_BY_NAME.search(line)
    if not found or not named or _PERCENT_ELSE.search(line) or _ELSE.search(line):
        return ()
    if _INSIDE.search(line[: found.start()]):
        return ()
    decimals = found[2] or ""
    total = 100 * 10 ** len(decimals)
    step = int(found[1] + decimals)
    words = _words(line[: found.start()])
    return (Count(words, Level.STEP, step, total, sure=False),) if step <= total else ()
