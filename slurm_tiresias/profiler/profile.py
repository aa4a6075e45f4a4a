"""A profile: the known facts about one model, for whose jobs they count, and their source."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_tiresias.profiler.models import SKEWS, known_name
from slurm_tiresias.profiler.skew import Skew

BUILT_IN, FILE, TRAFFIC, COLLECTIVES, OPERATOR = (
    "built-in",
    "file",
    "traffic",
    "collectives",
    "operator",
)
SOURCES = (BUILT_IN, FILE, TRAFFIC, COLLECTIVES, OPERATOR)
MEASURED = (TRAFFIC, COLLECTIVES)

MODEL, JOB = "model", "job"
KINDS = (MODEL, JOB)

MOST_NAME_CHARACTERS = 256
MOST_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Key:
    """What a profile is about: a model, or a user's jobs of one name.

    A model's profile without a user counts for all users. A measured one counts only for the user
    who ran the job, since others cannot know whether it really was that model.
    """

    kind: str
    name: str
    user: str = ""


def key_of(kind: str, name: str, user: str = "") -> Key:
    """Build a key from names that users chose: limit their length, and keep only valid text."""
    return Key(kind, _tame(name), _tame(user))


def _tame(name: str) -> str:
    text = name[:MOST_NAME_CHARACTERS].encode("utf-8", errors="replace").decode("utf-8")
    return unicodedata.normalize("NFC", text)


@dataclass(frozen=True, slots=True)
class Profile:
    """The skew of a model, the source of that number, and when it was noted (Unix time)."""

    key: Key
    skew: Skew
    source: str
    noted_s: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether it was learned from messages; otherwise it comes from the tensors themselves."""
        return self.source in MEASURED


def is_sound(profile: Profile) -> bool:
    """Whether the numbers of an imported profile are plausible."""
    skew = profile.skew
    return (
        profile.source in SOURCES
        and profile.key.kind in KINDS
        and bool(profile.key.name)
        and 0 < skew.largest_bytes <= skew.total_bytes <= MOST_BYTES
        and 0 < skew.pieces <= skew.total_bytes
        and math.isfinite(profile.noted_s)
    )


def built_in() -> Mapping[Key, Profile]:
    """The ten models of the paper's Table 6 (page 500)."""
    skews = {Key(MODEL, name): skew for name, skew in SKEWS.items()}
    return {key: Profile(key, skew, BUILT_IN) for key, skew in skews.items()}


def find(profiles: Mapping[Key, Profile], user: str, model: str, job_name: str) -> Profile | None:
    """Return the profile of a job, if there is one; ``model`` is "" if its user named none.

    A named model is looked up first as an operator noted it, then among the built-in ones in any
    spelling, then among this user's measured profiles. Without a model, the job's name is looked
    up, since jobs of one name tend to be runs of one program.
    """
    if not model:
        return profiles.get(key_of(JOB, job_name, user))
    keys = (
        key_of(MODEL, model),
        key_of(MODEL, known_name(model) or model),
        key_of(MODEL, model, user),
    )
    return next((profiles[key] for key in keys if key in profiles), None)
