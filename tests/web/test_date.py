"""The header `date` of every response."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from schedo.web.server import format_date


@pytest.mark.parametrize(
    "seconds",
    [0, 951_782_399.9, 951_782_400, 1_230_768_000, 1_709_209_845, *range(0, 31_536_000, 2_629_800)],
)
def test_a_date_is_written_as_http_demands(seconds: float) -> None:
    assert format_date(seconds).decode() == formatdate(seconds, usegmt=True)
