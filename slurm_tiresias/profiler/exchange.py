"""Profiles as JSON: written by ``export`` and ``--json``, read by ``import``."""

from __future__ import annotations

import json

from slurm_tiresias.errors import UsageError
from slurm_tiresias.profiler.profile import BUILT_IN, OPERATOR, Profile, is_sound, key_of
from slurm_tiresias.profiler.skew import Skew

SCHEMA = 1
MOST_BYTES = 64 << 20


def as_data(profile: Profile) -> dict[str, object]:
    """Return a profile as JSON data; sizes in bytes, times in Unix seconds."""
    return {
        "kind": profile.key.kind,
        "name": profile.key.name,
        "user": profile.key.user,
        "largest_bytes": profile.skew.largest_bytes,
        "total_bytes": profile.skew.total_bytes,
        "pieces": profile.skew.pieces,
        "ratio": profile.skew.ratio,
        "source": profile.source,
        "noted_s": profile.noted_s,
    }


def parsed(content: bytes) -> list[Profile]:
    """Parse the profiles of a file; raise ``UsageError`` if any of them is wrong."""
    if len(content) > MOST_BYTES:
        raise UsageError("The input is too long for a list of profiles", "Import what export wrote")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError("The input is not JSON", "Import what export wrote") from error
    match data:
        case {"schema": 1, "profiles": [*entries]}:
            return [_profile(number, entry) for number, entry in enumerate(entries, start=1)]
    raise UsageError("This is not a list of profiles of this version", "Import what export wrote")


def _profile(number: int, entry: object) -> Profile:
    unsound = UsageError(
        f"Profile {number} of the list is invalid",
        "Give it kind, name, largest_bytes and total_bytes, the largest no more than the total",
    )
    try:
        if not isinstance(entry, dict):
            raise TypeError
        key = key_of(_text(entry["kind"]), _text(entry["name"]), _text(entry.get("user", "")))
        sizes = (entry["largest_bytes"], entry["total_bytes"], entry.get("pieces", 1))
        source, noted_s = _text(entry.get("source", OPERATOR)), entry.get("noted_s", 0)
        if any(type(size) is not int for size in sizes) or type(noted_s) not in (int, float):
            raise TypeError
        source = OPERATOR if source == BUILT_IN else source
        profile = Profile(key, Skew(*sizes), source, float(noted_s))
    except (TypeError, LookupError, OverflowError) as error:
        raise unsound from error
    if not is_sound(profile):
        raise unsound
    return profile


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
