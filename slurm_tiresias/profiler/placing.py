"""How a job had better be placed, and by which rule and number: what ``explain`` says of it."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.profiler.fit import WORTH_CONSOLIDATING
from slurm_tiresias.profiler.profile import BUILT_IN, FILE, JOB, OPERATOR, Profile
from slurm_tiresias.profiler.skew import MB, Limits, style_for
from slurm_tiresias.profiler.speeds import Spreading

_LEARNED_FROM = {BUILT_IN: "built in", FILE: "from its file", OPERATOR: "noted by an operator"}
"""Whatever else a number may come from was measured, and on whose jobs stands with it."""


@dataclass(frozen=True, slots=True)
class Placing:
    """The style of a job, and why in a few words.

    ``skew`` is the largest tensor over the model's size, where known. ``because`` holds names that
    users made up: hostile until made printable.
    """

    style: PlacementStyle
    skew: float | None
    because: str


def by_wish(style: PlacementStyle) -> Placing:
    """As the job's user asked."""
    return Placing(style, None, "asked for by its user")


def by_experience(profile: Profile, spreading: Spreading) -> Placing:
    """As it fared in both placements, which tells more than any skew."""
    style = (
        PlacementStyle.CONSOLIDATE
        if spreading.gain >= WORTH_CONSOLIDATING
        else PlacementStyle.SPREAD
    )
    because = (
        f"on few nodes {_named(profile)} sent {spreading.gain:.2f} times as fast as on more, "
        f"in {spreading.runs} runs"
    )
    return Placing(style, profile.skew.ratio, because)


def by_skew(profile: Profile, limits: Limits) -> Placing:
    """By the share and the size of the largest tensor."""
    skew = profile.skew
    piece = "message" if profile.measured else "tensor"
    share, limit = _percent(skew.ratio), _percent(limits.pack_limit)
    source = _LEARNED_FROM.get(profile.source, f"{profile.source} of {profile.key.user}'s jobs")
    number = f"largest {piece} {share} of {_named(profile)} ({source})"
    bound = f"limit {limit}"
    if skew.ratio > limits.pack_limit and skew.largest_bytes < limits.least_bytes:
        bound = f"but of {_mb(skew.largest_bytes)} MB only, limit {_mb(limits.least_bytes)} MB"
    return Placing(style_for(skew, limits), skew.ratio, f"{number}, {bound}")


def by_setting(model: str, style: PlacementStyle) -> Placing:
    """As the configuration has it for models that nothing is known of."""
    what = f"nothing is known of {model}" if model else "nothing is known of its model"
    return Placing(style, None, f"{what}, placement.unknown_model is {style.value}")


def _named(profile: Profile) -> str:
    return f"jobs named {profile.key.name}" if profile.key.kind == JOB else profile.key.name


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / MB:.3g}"
