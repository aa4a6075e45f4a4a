"""Parse the hint in a job's comment.

A hint such as ``tiresias:model=vgg16,placement=auto`` is in the admin comment, where job_submit.lua
puts it, or in the user's own comment. Users may have written either, so hints are parsed strictly,
and a malformed one is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.settings.preemption import Checkpoint, PreemptionConfig, parse_checkpoint

MARK = "tiresias:"
MOST_CHARACTERS = 512

STYLES: dict[str, PlacementStyle | None] = {
    "auto": None,
    "consolidate": PlacementStyle.CONSOLIDATE,
    "spread": PlacementStyle.SPREAD,
}
PROFILING = ("auto", "on", "off")

FIRST_LOOK_MARK = "tiresias-first-look:"
"""Precedes the time, in seconds since the epoch, until which job_submit.lua delays a new job's
start, so that the controller can choose its nodes before Slurm starts it."""

_FIRST_LOOK = re.compile(rf"(?:^|\s){FIRST_LOOK_MARK}([0-9]{{1,10}})(?=\s|$)", re.ASCII)
_WORD = re.compile(rf"(?:^|(?<=\s)){MARK}(\S*)", re.ASCII)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_FOLDER = re.compile(r"(?=.{2,256}$)(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._+@:~%-]+)+/?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of a job: ``model`` is "" and ``style`` and ``checkpoint`` are None if not given;
    ``problem`` says why a hint was ignored."""

    model: str = ""
    style: PlacementStyle | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_dir: str = ""
    """A folder in which the job writes its checkpoints."""
    restarts: int = 0
    """How often in a row it is to be restarted after failures."""
    problem: str = ""


def is_model_name(name: str) -> bool:
    """Whether this is a valid model name in a hint and on a command line."""
    return _MODEL_NAME.fullmatch(name) is not None


def hints_of(admin_comment: str, comment: str) -> Hints:
    """Return the hints of a job; the admin comment's if both have some."""
    return _read(admin_comment) or _read(comment) or _NO_HINTS


def checkpoint_of(
    admin_comment: str, comment: str, site: PreemptionConfig, over_budget: bool = False
) -> Checkpoint:
    """Return a job's checkpoint signal and grace: its user's, within the site's limits.

    If the user is ``over_budget``, the grace is at most the site's default.
    """
    wish = hints_of(admin_comment, comment).checkpoint
    if wish is None:
        return site.default
    most_s = site.grace_s if over_budget else site.max_grace_s
    return replace(wish, grace_s=min(wish.grace_s, most_s))


def checkpoint_folder_of(admin_comment: str, comment: str) -> str:
    """Return the checkpoint folder that a job names; "" if it names none."""
    return hints_of(admin_comment, comment).checkpoint_dir


def first_look_until_s(admin_comment: str) -> float | None:
    """Return until when job_submit.lua delays the job's start for the controller; None if not.

    Only the admin comment counts, because users cannot write it.
    """
    found = _FIRST_LOOK.search(admin_comment) if FIRST_LOOK_MARK in admin_comment else None
    return float(found[1]) if found else None


_NO_HINTS = Hints()


@lru_cache(maxsize=4096)
def _read(text: str) -> Hints | None:
    """Return the hints in one comment; None if there are none."""
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
    checkpoint = parse_checkpoint(said["checkpoint"]) if "checkpoint" in said else None
    style = STYLES[said.get("placement", "auto")]
    folder, restarts = said.get("checkpoint-dir", ""), int(said.get("restart", "0"))
    return Hints(said.get("model", ""), style, checkpoint, folder, restarts)


def _is_right(name: str, value: str) -> bool:
    match name:
        case "model":
            return is_model_name(value)
        case "placement":
            return value in STYLES
        case "profile":
            return value in PROFILING
        case "checkpoint":
            return parse_checkpoint(value) is not None
        case "checkpoint-dir":
            return _FOLDER.fullmatch(value) is not None
        case "restart":
            return re.fullmatch("[0-9]{1,2}", value, re.ASCII) is not None
    return False
