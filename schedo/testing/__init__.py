"""Test tools for applications: testers, a clock that a test moves, and a job context.

docs/testing.md shows how to use them. The modules clock, faults and loop are for schedo's own
tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedo.testing.context import TestedJob, job_context
    from schedo.testing.tester import AsyncTester, Tester

__all__ = ["AsyncTester", "TestedJob", "Tester", "job_context"]

_MODULES = {
    "AsyncTester": "schedo.testing.tester",
    "TestedJob": "schedo.testing.context",
    "Tester": "schedo.testing.tester",
    "job_context": "schedo.testing.context",
}


def __getattr__(name: str) -> Any:
    # Loaded at the first use, because every run of pytest imports this package.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
