"""Feature expressions of ``sbatch --constraint``, which are untrusted user input."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

_TOKENS = re.compile(r"[&|,()\[\]]|[^&|,()\[\]]+")
_OPENING = {")": "(", "]": "["}


def readable(expression: str) -> bool:
    """Whether the expression is well formed; Slurm rejects other expressions at submission.

    As in Slurm, a trailing operator is allowed and a word directly after a group is ignored.
    """
    return not expression or bool(_parsed(expression))


def matches(expression: str, features: Collection[str]) -> bool:
    """Whether a node with these features may serve the expression.

    As in Slurm, operators are applied from left to right without precedence; parentheses group.
    Counts (``a*2``) and alternatives for the whole job (``[a|b]``) cannot be decided per node: a
    node matches if it could serve any part of them, and Slurm decides. No node matches an
    expression that is not ``readable``.
    """
    tokens = _parsed(expression)
    any_part = "[" in expression or "*" in expression
    outer: list[tuple[bool, str]] = []
    # The value of everything to the left of the next operand, and the operator between them.
    result, operator = not expression, "|"
    for token in tokens:
        if token in "([":
            outer.append((result, operator))
            result, operator = False, "|"
        elif token in "&,|":
            operator = token
        else:
            operand = result if token in ")]" else token in features
            if token in ")]":
                result, operator = outer.pop()
            either = operator == "|" or any_part
            result = (result or operand) if either else (result and operand)
    return result


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> tuple[str, ...]:
    """Return the operators, brackets and features of an expression; empty if it is malformed."""
    tokens: list[str] = []
    # Slurm counts parentheses and brackets separately, so it accepts ``([a|b)]``.
    is_open = Counter[str]()
    operand_next = True
    for token in _TOKENS.findall(expression):
        if token in "([":
            if not operand_next:
                return ()
            is_open[token] += 1
        elif token in "&,|)]":
            if operand_next:
                return ()
            operand_next = token in "&,|"
            if not operand_next:
                is_open[_OPENING[token]] -= 1
                if is_open[_OPENING[token]] < 0:
                    return ()
        elif operand_next:
            token = token.partition("*")[0]
            if not token:
                return ()
            operand_next = False
        else:
            continue
        tokens.append(token)
    return () if any(is_open.values()) else tuple(tokens)
