"""What a job's user told of it: the hint in its comment.

``tiresias:model=vgg16,placement=auto`` stands in the admin comment, where job_submit.lua puts it,
or in the user's own. Either is text that a user may have written: a hint is read strictly, and
one that cannot be read is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.model import PlacementStyle

MARK = "tiresias:"
MOST_CHARACTERS = 512
LONGEST_GRACE_S = 3600

STYLES: dict[str, PlacementStyle | None] = {
    "auto": None,
    "consolidate": PlacementStyle.CONSOLIDATE,
    "spread": PlacementStyle.SPREAD,
}
PROFILING = ("auto", "on", "off")
SIGNALS = re.compile("HUP|INT|QUIT|USR1|USR2|ALRM|TERM|URG|CONT|XCPU|PROF|VTALRM|WINCH|PWR")
"""Those that a program can catch."""

FIRST_LOOK_MARK = "tiresias-first-look:"
"""Behind it job_submit.lua writes until when it has put off a new job's start, as seconds since the
epoch, so that the controller can choose the job's nodes before Slurm starts it."""

_FIRST_LOOK = re.compile(rf"(?:^|\s){FIRST_LOOK_MARK}([0-9]{{1,10}})(?=\s|$)", re.ASCII)
_WORD = re.compile(rf"(?:^|(?<=\s)){MARK}(\S*)", re.ASCII)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_CHECKPOINT = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]{1,5})@([0-9]{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job is asked to save its state, and how long it is given before it is requeued."""

    signal: str
    """Without SIG; empty: it is not asked."""
    grace_s: float


@dataclass(frozen=True, slots=True)
class Hints:
    """``model`` is empty and ``style`` and ``checkpoint`` None where nothing was said; ``problem``
    says why a hint was not believed."""

    model: str = ""
    style: PlacementStyle | None = None
    checkpoint: Checkpoint | None = None
    problem: str = ""


def is_model_name(name: str) -> bool:
    """Whether a model can be called so in a hint and on a command line."""
    return _MODEL_NAME.fullmatch(name) is not None


def hints_of(admin_comment: str, comment: str) -> Hints:
    """The hint of a job; the admin comment's, where both have one."""
    return _read(admin_comment) or _read(comment) or _NO_HINTS


def checkpoint_of(
    admin_comment: str, comment: str, site: PreemptionConfig, over_budget: bool = False
) -> Checkpoint:
    """How the job is asked to save its state: as its user said, within what the site allows.

    A user ``over_budget`` gets no longer grace than the site gives to all.
    """
    wish = hints_of(admin_comment, comment).checkpoint
    if wish is None:
        return Checkpoint(site.signal.removeprefix("SIG"), site.grace_s)
    most_s = site.grace_s if over_budget else site.max_grace_s
    return replace(wish, grace_s=min(wish.grace_s, most_s))


def first_look_until_s(admin_comment: str) -> float | None:
    """Until when the job's start was put off for the controller's sake; None where it was not.

    Only the administrators' comment is asked: no user can write there.
    """
    found = _FIRST_LOOK.search(admin_comment) if FIRST_LOOK_MARK in admin_comment else None
    return float(found[1]) if found else None


_NO_HINTS = Hints()


@lru_cache(maxsize=4096)
def _read(text: str) -> Hints | None:
    """The hint in one comment; None where there is none."""
    if MARK not in text:
        return None
    found = _WORD.findall(text)
    if not found:
        return None
    if len(found) > 1:
        return Hints(problem="it is there twice")
    if len(found[0]) > MOST_CHARACTERS:
        return Hints(problem="it is too long")
    return _parsed(found[0])


def _parsed(word: str) -> Hints:
    said: dict[str, str] = {}
    for part in word.split(","):
        name, equals, value = part.partition("=")
        if not equals or not _is_right(name, value):
            return Hints(problem=f"{part[:64]!r} is no part of one")
        if name in said:
            return Hints(problem=f"{name} is there twice")
        said[name] = value
    checkpoint = _checkpoint(said["checkpoint"]) if "checkpoint" in said else None
    return Hints(said.get("model", ""), STYLES[said.get("placement", "auto")], checkpoint)


def _is_right(name: str, value: str) -> bool:
    match name:
        case "model":
            return is_model_name(value)
        case "placement":
            return value in STYLES
        case "profile":
            return value in PROFILING
        case "checkpoint":
            return _checkpoint(value) is not None
    return False


def _checkpoint(value: str) -> Checkpoint | None:
    """``USR1@60``; None for anything else."""
    found = _CHECKPOINT.fullmatch(value)
    if found is None or SIGNALS.fullmatch(found[1]) is None or int(found[2]) > LONGEST_GRACE_S:
        return None
    return Checkpoint(found[1], float(found[2]))
