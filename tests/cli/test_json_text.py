"""Wrong JSON on the command line is explained."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["run", "x", "--meta", "{"], "the text is not JSON: Expecting property name"),
        (["run", "x", "--meta", DEEP], "the text is nested deeper than 64 levels"),
        (["submit", "t", "--payload", DEEP], "the text is nested deeper than 64 levels"),
        (["bench", "--task", "t", "--payload", DEEP], "the text is nested deeper than 64 levels"),
    ],
)
def test_the_option_and_the_reason_are_named(schedo: Call, args: list[str], reason: str) -> None:
    result = schedo(*args)

    assert result.exit_code == 2
    assert args[-2] in result.stderr
    assert reason in result.stderr
