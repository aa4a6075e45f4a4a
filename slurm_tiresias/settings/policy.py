"""The table ``[policy]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

MAX_TIERS = 8
"""More tiers than have been shown to help; bounds the number of priority bands."""

WEIGHT = re.compile(r"[^=\s]{1,64}=\d{1,6}(\.\d{1,9})?", re.ASCII)

LAS, GITTINS = "2d-las", "2d-gittins"
POLICIES = (LAS, GITTINS)
ESTIMATES = ("reports", "history")
REPORTS, HISTORY = ESTIMATES
CHARGES = ("job", "user", "account")
ORDERS = ("first-start", "entry", "running-first", "newest")


@dataclass(frozen=True)
class PolicyConfig(Table):
    """How attained service becomes a tier, and the order inside a tier."""

    name: str = setting(
        "2d-las",
        "2d-las uses only the attained service. 2d-gittins orders each tier but the last by the "
        "Gittins index, learned from jobs that have ended.",
        choices=POLICIES,
    )
    estimates: tuple[str, ...] = setting(
        ESTIMATES,
        "Sources for a job's remaining service; the first that has an estimate is used. A job with "
        "an estimate gets the tier of its remaining service, any other that of its attained "
        "service. reports: the job's own progress reports, while they prove true. history: how "
        "long ended jobs of a similar time limit, the same user and name ran; each job still gets "
        "its try in the first tier (docs/explanation/algorithm.md).",
        choices=ESTIMATES,
    )
    thresholds_gpu_s: tuple[float, ...] = setting(
        (21_600.0, 86_400.0, 345_600.0, 1_382_400.0, 5_529_600.0),
        "Attained service at which a job moves down a tier, in ascending order; one threshold "
        "makes two tiers. The paper has one, 3200 or 3600. Several, far apart, suit jobs that "
        "differ by orders of magnitude (docs/how-to/simulate.md).",
        unit="GPU-seconds",
        minimum=1e-3,
    )
    gpu_weights: tuple[str, ...] = setting(
        (),
        "What a GPU of a type counts for in attained service and shares, as TYPE=WEIGHT: a slice "
        "1g.10gb=0.14, an older generation v100=0.3. Others count for 1. Without any: the weights "
        "of the types in TRESBillingWeights of the partitions, as shares of the largest.",
    )
    order: str = setting(
        "first-start",
        "Order inside a tier. first-start (the paper's): by first start; jobs that never ran come "
        "last. entry: by the time of entering the tier. running-first: by the start of the current "
        "wait. newest: by the time of entering the tier, the latest first.",
        choices=ORDERS,
    )
    promote_knob: float = setting(
        0.0,
        "A waiting job is promoted to the top tier when its waiting time is this multiple of its "
        "running time since its last promotion (paper page 491, PROMOTEKNOB), and an hour at "
        "least. Each promotion doubles that. 0: no promotion.",
        minimum=0,
    )
    charge: str = setting(
        "job",
        "Whose service selects a job's tier. job: its own. user: also that of the user's other "
        "runs that ended within a day before its first start, so that work split into "
        "many jobs stays in its tier. account: the same for the job's account, or for its user if "
        "it has none (docs/explanation/algorithm.md).",
        choices=CHARGES,
    )

    @property
    def tier_count(self) -> int:
        return len(self.thresholds_gpu_s) + 1

    def check(self, config: Config) -> None:
        cuts = self.thresholds_gpu_s
        if any(b <= a for a, b in pairwise(cuts)):
            raise SettingError(
                "policy.thresholds_gpu_s",
                f"= [{', '.join(f'{cut:g}' for cut in cuts)}] is not ascending",
                "Write each threshold larger than the one before",
            )
        for item in self.gpu_weights:
            if not WEIGHT.fullmatch(item) or float(item.partition("=")[2]) <= 0:
                raise SettingError(
                    "policy.gpu_weights", f"has {item[:40]!r}", "Write TYPE=WEIGHT, like v100=0.3"
                )
        if not 1 <= len(cuts) < MAX_TIERS:
            raise SettingError(
                "policy.thresholds_gpu_s",
                f"has {len(cuts)} thresholds",
                f"Write 1 to {MAX_TIERS - 1}",
            )
