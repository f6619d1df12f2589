"""Child processes and the pipes by which their handlers wait for a test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.site import HASTY, Site, serving


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Site]:
    """A site that soon takes a silent process to be blocked."""
    async with serving(tmp_path, timeouts=HASTY) as running:
        yield running


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"
