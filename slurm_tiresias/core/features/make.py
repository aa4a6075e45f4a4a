"""The policy that a configuration specifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slurm_tiresias.core.features import gittins
from slurm_tiresias.core.features.estimates import (
    ByHistory,
    ByReports,
    Estimator,
    WithEstimates,
)
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.policy import EndedJob, Policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.features.recurring import RunHistory
from slurm_tiresias.core.features.tiers import ORDERS, TieredGittins, TieredLas
from slurm_tiresias.settings.policy import GITTINS, HISTORY, LAS, REPORTS, PolicyConfig

Factory = Callable[[PolicyConfig, ServiceHistory | None], Policy]


def _las(config: PolicyConfig, _history: ServiceHistory | None = None) -> Policy:
    return TieredLas(config.thresholds_gpu_s, ORDERS[config.order], Promotion.of(config))


def _gittins(config: PolicyConfig, history: ServiceHistory | None) -> Policy:
    if history is None or len(history) < gittins.GITTINS_SAMPLES:
        return _las(config)
    order, promotion = ORDERS[config.order], Promotion.of(config)
    return TieredGittins(config.thresholds_gpu_s, order, history, promotion)


FACTORIES: Mapping[str, Factory] = {
    LAS: _las,
    GITTINS: _gittins,
}
"""What makes each policy of ``config.POLICIES``, before estimates are added."""


def make_policy(
    config: PolicyConfig,
    history: ServiceHistory | None = None,
    runs: RunHistory | None = None,
) -> Policy:
    """Return the policy that a configuration specifies; ``ValueError`` for an unknown name.

    2D-Gittins falls back to 2D-LAS until ``history`` holds ``GITTINS_SAMPLES`` ended jobs. ``runs``
    are the initial data of the estimates by history.
    """
    if config.name not in FACTORIES:
        raise ValueError(f"no policy is called {config.name!r}")
    base = FACTORIES[config.name](config, history)
    if not config.estimates or not base.has_tiers:
        return base
    estimators: dict[str, Callable[[], Estimator]] = {
        REPORTS: ByReports,
        HISTORY: lambda: ByHistory(runs or RunHistory()),
    }
    made = tuple(estimators[name]() for name in config.estimates)
    return WithEstimates(base, config.thresholds_gpu_s, made, base.promotion)


def learned_policy(config: PolicyConfig, ended: Callable[[], Iterable[EndedJob]]) -> Policy:
    """Return the policy that a configuration specifies, trained on ended jobs.

    ``ended`` returns these jobs, the latest last; it is called only if the policy uses them.
    """
    history = runs = None
    if config.name == GITTINS:
        history = ServiceHistory(job.service_gpu_s for job in ended())
    if HISTORY in config.estimates:
        runs = RunHistory((job.user, job.name, job.time_limit_s, job.run_s) for job in ended())
    return make_policy(config, history, runs)
