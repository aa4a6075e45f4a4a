"""Node features as ``sbatch --constraint`` writes them."""

from __future__ import annotations

import re
from collections.abc import Collection

_TOKENS = re.compile(r"[&|,()\[\]]|[^&|,()\[\]]+")


def matches(expression: str, features: Collection[str]) -> bool:
    """Whether a node with these features may serve the expression.

    Operators are applied from left to right, none before another, as Slurm does; parentheses
    group. Counts (``a*2``) and alternatives for the whole job (``[a|b]``) cannot be judged node by
    node: a node that could serve any part of them counts, and Slurm has the last word.
    """
    tokens = _TOKENS.findall(expression)
    return _evaluate(tokens, features, any_part="[" in tokens) if tokens else True


def _evaluate(tokens: list[str], features: Collection[str], *, any_part: bool) -> bool:
    result = _operand(tokens, features, any_part=any_part)
    while tokens and tokens[0] in "&,|":
        operator = tokens.pop(0)
        operand = _operand(tokens, features, any_part=any_part)
        result = (result or operand) if operator == "|" or any_part else (result and operand)
    return result


def _operand(tokens: list[str], features: Collection[str], *, any_part: bool) -> bool:
    if not tokens:
        return False
    token = tokens.pop(0)
    if token not in "([":
        return token.split("*")[0] in features
    result = _evaluate(tokens, features, any_part=any_part)
    if tokens and tokens[0] in ")]":
        tokens.pop(0)
    return result
