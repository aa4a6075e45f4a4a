"""``--constraint`` on arbitrary text from users."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_tiresias.core.placement.features import matches, readable

MOST_CHARACTERS = 4096
FEATURES = frozenset({"a", "b", "c"})
QUICK_S = 0.5

operands: st.SearchStrategy[str] = st.sampled_from(["a", "b", "d", "e"])
flat = st.lists(operands, min_size=1, max_size=5)


@st.composite
def chains(draw: st.DrawFn, parts: st.SearchStrategy[str]) -> str:
    """Parts with an operator between any two."""
    first, *others = draw(st.lists(parts, min_size=1, max_size=5))
    return first + "".join(draw(st.sampled_from("&|,")) + other for other in others)


expressions = chains(operands | chains(operands).map("({})".format))


def value_of(expression: str) -> bool:
    """Evaluate the expression without counts and brackets, from left to right, with Python's own
    parser."""
    words = {word: str(word in FEATURES) for word in "abde"}
    source = "".join(words.get(sign, f" {sign.replace(',', '&')} ") for sign in expression)
    groups = source.replace("(", " ( ").replace(")", " ) ").split()

    def chain(at: int) -> tuple[bool, int]:
        result, operator = False, "|"
        while at < len(groups) and groups[at] != ")":
            if groups[at] in "&|":
                operator = groups[at]
                at += 1
                continue
            operand, at = chain(at + 1) if groups[at] == "(" else (groups[at] == "True", at)
            result = result or operand if operator == "|" else result and operand
            at += 1
        return result, at

    return chain(0)[0]


@pytest.mark.parametrize(
    ("expression", "served"),
    [
        ("", True),
        ("a", True),
        ("d", False),
        ("a&b", True),
        ("a,d", False),
        ("d|b", True),
        ("a|b&d", False),
        ("d&b|a", True),
        ("c|(d&b)", True),
        ("d&(a|c)", False),
        ("(a&b)|(c&d)", True),
        # Slurm ignores a trailing operator, and what follows a group.
        ("a&", True),
        ("(b&c)d", True),
        ("(d)a", False),
        # Counts and alternatives are for the job as a whole: the node need satisfy only one part.
        ("[a|d]", True),
        ("[d|e]&b", True),
        ("b*2&d", True),
        ("d&b*1", True),
        ("d*2&e", False),
        ("(d|b)*2", True),
    ],
)
def test_features_of_a_node_match_expressions(expression: str, served: bool) -> None:
    assert readable(expression)
    assert matches(expression, FEATURES) is served


@pytest.mark.parametrize(
    "expression",
    ["&a", "a&&b", "a&|b", "|", "(", ")", "(a", "a)", "a(b", "(a)(b)", "()", "(a&)", "*2", "[a"],
)
def test_no_node_matches_an_expression_that_slurm_refuses(expression: str) -> None:
    assert not readable(expression)
    assert not matches(expression, FEATURES)


@given(expressions)
def test_operators_apply_from_left_to_right_and_parentheses_group(expression: str) -> None:
    assert readable(expression)
    assert matches(expression, FEATURES) is value_of(expression)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda length: "(" * (length // 2) + ")" * (length // 2),
        lambda length: "(" * (length // 2) + "a" + ")" * (length // 2 - 1),
        lambda length: "(" * length,
        lambda length: "[(" * (length // 2),
        lambda length: "(a&" * (length // 3),
        lambda length: "a|" * (length // 2),
        lambda length: "a" * length,
        lambda length: "*" * length,
    ],
    ids=["empty", "nested", "opened", "both", "chained", "flat", "word", "counts"],
)
def test_deep_nesting_and_length_cause_no_error_or_delay(hostile: Callable[[int], str]) -> None:
    expression = hostile(MOST_CHARACTERS)
    assert len(expression) <= MOST_CHARACTERS
    began = time.process_time()
    for node in range(100):
        matches(expression, {"a", f"n{node}"})
    readable(expression)
    assert time.process_time() - began < QUICK_S


@given(st.text(max_size=MOST_CHARACTERS) | st.text("ab*2&|,()[]", max_size=60))
@example("(" * 511 + "a" + ")" * 511)
def test_any_feature_expression_is_parsed_or_matches_no_node(expression: str) -> None:
    if not readable(expression):
        assert not matches(expression, FEATURES)
    else:
        assert isinstance(matches(expression, FEATURES), bool)
