"""The example application as a fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.example import Example


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path)
