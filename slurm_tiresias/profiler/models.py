"""The ten models of the paper's testbed (Table 6, page 500), as trained on 1001 classes.

``scripts/testbed/models.py`` builds each network as in its publication; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_tiresias.profiler.skew import Skew

SKEWS: Mapping[str, Skew] = {
    "vgg19": Skew(411_041_792, 574_685_348, 38),
    "vgg16": Skew(411_041_792, 553_446_564, 32),
    "vgg11": Skew(411_041_792, 531_469_732, 22),
    "alexnet": Skew(150_994_944, 247_369_380, 16),
    "resnet152": Skew(9_437_184, 241_385_124, 777),
    "resnet101": Skew(9_437_184, 178_626_212, 522),
    "resnet50": Skew(9_437_184, 102_448_804, 267),
    "inception4": Skew(6_150_144, 170_851_748, 598),
    "inception3": Skew(8_200_192, 95_415_332, 378),
    "googlenet": Skew(4_100_096, 27_998_308, 116),
}


def known_name(name: str) -> str | None:
    """Return our name of a model from any spelling (``VGG-16``, ``inception_v3``), or None.

    >>> known_name("Inception_V3")
    'inception3'
    """
    plain = re.sub(r"[^a-z0-9]|v(?=[34]$)", "", name.lower())
    return plain if plain in SKEWS else None
