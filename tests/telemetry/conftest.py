"""The tests need the extra otel, which the development requirements have."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

HAS_OTEL = importlib.util.find_spec("opentelemetry") is not None
collect_ignore_glob = [] if HAS_OTEL else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not HAS_OTEL:
        terminalreporter.section("tests/telemetry is skipped")
        terminalreporter.line("The extra otel is not installed: run make .venv/.dev")


@pytest.fixture
def memory() -> Iterator[InMemorySpanExporter]:
    """The spans that end during the test."""
    from tests.telemetry.spans import span_memory

    memory = span_memory()
    memory.clear()
    yield memory
    memory.clear()
