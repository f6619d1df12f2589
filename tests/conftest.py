"""Settings that every test shares."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.postgres import postgres_store_url, postgres_url

__all__ = ["postgres_store_url", "postgres_url"]

# pytest explains failed assertions of an imported module only if the module is registered here.
for name in ("contract", "contract_jobs", "contract_lists", "contract_reads", "contract_schedules"):
    pytest.register_assert_rewrite(f"tests.store.{name}")
pytest.register_assert_rewrite("tests.store.steps")

# A shared machine can be slow, so examples have no deadline; a failure prints how to replay it.
settings.register_profile("schedo", deadline=None, print_blob=True)
settings.load_profile("schedo")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in what a test prints and logs; reports are sent as UTF-8."""
    report = yield
    report.sections = [(name, escape_surrogates(text)) for name, text in report.sections]
    return report


def escape_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
