"""How a job should be placed, and the rule and number behind it, for ``explain``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.profiler.fit import WORTH_CONSOLIDATING
from slurm_tiresias.profiler.profile import BUILT_IN, FILE, JOB, OPERATOR, Profile
from slurm_tiresias.profiler.skew import LEAST_SKEWED_BYTES, MB, style_for
from slurm_tiresias.profiler.speeds import Spreading

_LEARNED_FROM = {BUILT_IN: "built in", FILE: "from its file", OPERATOR: "noted by an operator"}
"""Sources that are not measurements; a measured number also says whose jobs it is from."""


@dataclass(frozen=True, slots=True)
class Placing:
    """A job's placement style, and the reason in a few words.

    ``skew`` is the largest tensor's share of the model's size, if known. ``because`` contains names
    from users: sanitize it before printing.
    """

    style: PlacementStyle
    skew: float | None
    because: str


def by_wish(style: PlacementStyle) -> Placing:
    """Place the job as its user asked."""
    return Placing(style, None, "asked for by its user")


def by_experience(profile: Profile, spreading: Spreading) -> Placing:
    """Place the job by its measured speed in both placements, better evidence than any skew."""
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


def by_skew(profile: Profile, pack_limit: float) -> Placing:
    """Place the job by the share and the size of the largest tensor."""
    skew = profile.skew
    piece = "message" if profile.measured else "tensor"
    share, limit = _percent(skew.ratio), _percent(pack_limit)
    source = _LEARNED_FROM.get(profile.source, f"{profile.source} of {profile.key.user}'s jobs")
    number = f"largest {piece} {share} of {_named(profile)} ({source})"
    bound = f"limit {limit}"
    if skew.ratio > pack_limit and skew.largest_bytes < LEAST_SKEWED_BYTES:
        bound = f"but of {_mb(skew.largest_bytes)} MB only, limit {_mb(LEAST_SKEWED_BYTES)} MB"
    return Placing(style_for(skew, pack_limit), skew.ratio, f"{number}, {bound}")


def by_default(model: str) -> Placing:
    """Consolidate a job of an unknown model."""
    because = f"nothing is known of {model or 'its model'}"
    return Placing(PlacementStyle.CONSOLIDATE, None, because)


def _named(profile: Profile) -> str:
    return f"jobs named {profile.key.name}" if profile.key.kind == JOB else profile.key.name


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / MB:.3g}"
