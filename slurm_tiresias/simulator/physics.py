"""The costs of placement and preemption by model: the paper's measurements.

Sizes and skew are those of Table 6 (page 500), speeds those of Fig. 3 (8-GPU jobs on 4-GPU nodes,
placed at random, against the same jobs consolidated), checkpoints those of Fig. 4 and restarts
those of Fig. 5. Numbers from Figs. 3 and 5 are measured off the figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WORKERS_MEASURED = (1, 2, 8)
"""The numbers of workers, with one GPU each, for which Fig. 5 shows restarts."""


@dataclass(frozen=True, slots=True)
class ModelPhysics:
    """One model. ``skew`` is the size of its largest tensor over its total size; None if unknown.

    ``spread_speed`` is its progress per second when spread over nodes, where consolidated is 1.0.
    ``checkpoint_s`` is the time to save it, ``restart_s`` the time to build it, load it and warm
    up, for each number of workers in ``WORKERS_MEASURED``.
    """

    name: str
    size_mb: float
    skew: float | None
    spread_speed: float
    checkpoint_s: float
    restart_s: tuple[float, float, float]


MODELS = {
    model.name: model
    for model in (
        ModelPhysics("vgg19", 548.1, 0.715, 0.72, 2.7, (18.3, 45.0, 49.0)),
        ModelPhysics("vgg16", 527.8, 0.743, 0.73, 2.3, (17.4, 42.8, 48.6)),
        ModelPhysics("vgg11", 506.8, 0.773, 0.77, 1.9, (14.7, 41.9, 46.4)),
        ModelPhysics("alexnet", 235.9, 0.610, 0.80, 1.3, (8.0, 36.6, 38.3)),
        ModelPhysics("resnet152", 230.2, 0.039, 1.04, 26.3, (64.2, 66.4, 68.2)),
        ModelPhysics("resnet101", 170.4, 0.053, 1.06, 17.8, (44.6, 45.5, 46.8)),
        ModelPhysics("resnet50", 97.7, 0.092, 1.08, 9.4, (25.0, 24.5, 25.9)),
        ModelPhysics("inception4", 162.9, 0.036, 1.02, 22.2, (57.5, 59.7, 61.1)),
        ModelPhysics("inception3", 91.0, 0.086, 1.06, 14.1, (37.4, 37.9, 38.8)),
        ModelPhysics("googlenet", 26.7, 0.146, 1.07, 5.7, (16.9, 15.6, 16.5)),
    )
}
"""The ten models of the paper's testbed, in the order of its Table 6."""

UNKNOWN_MODEL = ModelPhysics("", 0.0, None, 1.0, 12.1, (50.0, 50.0, 50.0))
"""Used for models that are not in the table: placement does not change their speed, and a
preemption costs 62.1 s, the mean of the 221 preemptions on the paper's testbed (page 495: 13,724 s
in total)."""


@lru_cache(maxsize=4096)
def physics_of(model: str) -> ModelPhysics:
    """Return a model by its name in any spelling: ``VGG-16``, ``inception_v3``, ``ResNet50``."""
    return MODELS.get(re.sub(r"[^a-z0-9]|v(?=[34]$)", "", model.lower()), UNKNOWN_MODEL)


def restart_cost_s(model: str, gpus: int) -> float:
    """Return the seconds that one preemption costs a job for saving and restarting.

    The restart time is interpolated between the measured numbers of workers and is constant above
    eight.
    """
    physics = physics_of(model)
    one_s, two_s, eight_s = physics.restart_s
    one, two, eight = WORKERS_MEASURED
    workers = max(1, gpus)
    if workers >= eight:
        restart_s = eight_s
    elif workers >= two:
        restart_s = two_s + (eight_s - two_s) * (workers - two) / (eight - two)
    else:
        restart_s = one_s + (two_s - one_s) * (workers - one) / (two - one)
    return physics.checkpoint_s + restart_s
