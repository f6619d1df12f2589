"""The fake server for the tests of the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.server import FakeServer, fake_server


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running
