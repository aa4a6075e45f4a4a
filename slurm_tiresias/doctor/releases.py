"""What differs between releases of Slurm and matters here; nothing else compares releases."""

from __future__ import annotations

Release = tuple[int, int, int]

OLDEST = (22, 5)
TRIED = ((22, 5), (24, 11), (26, 5))
"""Those whose Slurm this program was run beside."""

RATE_LIMIT = (23, 2)
SIGNAL_CHILDREN = (23, 11)
MULTIFACTOR_BY_DEFAULT = (24, 11)
REQUEUE_DELAY = (25, 11)
BF_CONTINUE_KEEPS_UPDATES = (26, 5, 3)


def since(release: Release | None, first: tuple[int, ...]) -> bool:
    """Whether this release is ``first`` or a later one; of an unknown one it is not believed."""
    return release is not None and release[: len(first)] >= first


def written(release: tuple[int, ...]) -> str:
    """As Slurm writes it: ``22.05.8``."""
    first, second, *rest = release
    return ".".join([f"{first}.{second:02d}", *map(str, rest)])
