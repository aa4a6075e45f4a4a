"""What GPUs of each type count for: slices of GPUs, and older generations, count for less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_tiresias.core.job import ALL_ALIKE
from slurm_tiresias.model import ANY_TYPE
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Partition


def gpu_weights(
    partitions: Iterable[Partition], config: Config, before: Mapping[str, float] = ALL_ALIKE
) -> Mapping[str, float]:
    """Return the weights by type: those of the configuration, or else the billing weights of the
    managed partitions, as shares of the largest. If they are ``before``, that object is returned.
    """
    if config.policy.gpu_weights:
        pairs = (item.partition("=") for item in config.policy.gpu_weights)
        found = {gpu_type: float(weight) for gpu_type, _, weight in pairs}
    else:
        billed: dict[str, float] = {}
        for partition in partitions:
            if partition.name in config.manage.partitions:
                for gpu_type, weight in partition.gpu_weights.items():
                    billed[gpu_type] = max(weight, billed.get(gpu_type, 0.0))
        most = max(billed.values(), default=0.0)
        found = {kind: w / most for kind, w in billed.items() if kind != ANY_TYPE and w}
    return before if found == before else found
