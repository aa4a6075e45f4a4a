"""Step times of made-up trainings: steady ones, ones with noise, and ones that change their
pace."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

Steps = Sequence[float]
"""The time of each step of a training, in seconds."""

SHORTEST_S, LONGEST_S = 100.0, 4 * 3600.0


def _lasting(shape: Steps, chance: random.Random) -> Steps:
    """Stretch step times such that the training lasts from 100 s to four hours."""
    all_s = math.exp(chance.uniform(math.log(SHORTEST_S), math.log(LONGEST_S)))
    unit_s = all_s / sum(shape)
    return [unit_s * one for one in shape]


def _number(chance: random.Random, least: int = 120, most: int = 5000) -> int:
    return round(math.exp(chance.uniform(math.log(least), math.log(most))))


def constant(chance: random.Random) -> Steps:
    return _lasting([1.0] * _number(chance), chance)


def jittered(chance: random.Random) -> Steps:
    """Steps that differ by five percent."""
    return _lasting([chance.gauss(1.0, 0.05) for _ in range(_number(chance))], chance)


def lognormal(chance: random.Random) -> Steps:
    sigma = chance.uniform(0.3, 1.0)
    return _lasting([chance.lognormvariate(0.0, sigma) for _ in range(_number(chance))], chance)


def bursts(chance: random.Random) -> Steps:
    """A pause of 15 to 30 steps after every tenth step."""
    pause = chance.uniform(15.0, 30.0)
    shape = [1.0 + pause * (n % 10 == 9) for n in range(_number(chance))]
    return _lasting(shape, chance)


def evaluations(chance: random.Random) -> Steps:
    """An evaluation as long as 20 to 60 steps after every hundredth step."""
    pause = chance.uniform(20.0, 60.0)
    shape = [1.0 + pause * (n % 100 == 99) for n in range(_number(chance, 400))]
    return _lasting(shape, chance)


def epochs(chance: random.Random) -> Steps:
    """Ten to a hundred epochs as steps, which differ by two percent."""
    return _lasting([chance.gauss(1.0, 0.02) for _ in range(_number(chance, 10, 100))], chance)


def compile_first(chance: random.Random) -> Steps:
    """A first step that takes 5 to 25 % of the time."""
    number = _number(chance)
    first = number * chance.uniform(0.05, 0.33)
    return _lasting([first, *([1.0] * (number - 1))], chance)


def slow_start(chance: random.Random) -> Steps:
    """The first tenth of the steps take five times as long."""
    return _changing(chance, 0.1, 5.0, 1.0)


def slower_midway(chance: random.Random) -> Steps:
    return _changing(chance, 0.5, 1.0, 2.0)


def faster_after_a_quarter(chance: random.Random) -> Steps:
    return _changing(chance, 0.27, 2.7, 1.0)


def _changing(chance: random.Random, at: float, before: float, after: float) -> Steps:
    number = _number(chance)
    spread = chance.choice((0.0, 0.05, 0.2))
    shape = [
        (before if n < at * number else after) * chance.lognormvariate(0.0, spread)
        for n in range(number)
    ]
    return _lasting(shape, chance)


Training = Callable[[random.Random], Steps]

STEADY: dict[str, Training] = {
    "constant": constant,
    "differing by 5 %": jittered,
    "lognormal, sigma 0.3 to 1": lognormal,
    "a pause after each 10 steps": bursts,
    "an evaluation after each 100 steps": evaluations,
    "epochs": epochs,
    "compiled first": compile_first,
}
CHANGING: dict[str, Training] = {
    "5 times slower for the first tenth": slow_start,
    "2 times slower from the middle on": slower_midway,
    "2.7 times faster after a quarter": faster_after_a_quarter,
}
