"""What is written as TOML is read as the same data."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.cli.toml_text import NotInTomlError, render_toml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_toml_has_the_same_data(document: dict[str, object]) -> None:
    assert tomllib.loads(render_toml(document)) == document


def test_objects_are_tables_and_lists_are_on_one_line() -> None:
    text = render_toml({"a": 1, "b.c": {"d": {"e": ["f", {"g": True}]}, "h": 'say "hi"\n'}})

    assert text == (
        'a = 1\n\n["b.c"]\nh = "say \\"hi\\"\\n"\n\n["b.c".d]\ne = ["f", { g = true }]\n'
    )


def test_null_is_refused_with_its_place() -> None:
    with pytest.raises(NotInTomlError, match=r"^a\.b\.1 is null"):
        render_toml({"a": {"b": [1, None]}})
