"""The pytest plugin: the fixtures `schedo_app` and `schedo_tester`, and the marker `schedo`.

pytest imports this module in every environment with schedo, so it imports nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from schedo import Schedo
    from schedo.testing import Tester


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("schedo_app", "The application of the fixture schedo_tester: module:attribute")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'schedo(mode="drain", start=None, settle="5s"): how the fixture schedo_tester runs the'
        " application; see schedo.testing.Tester",
    )


@pytest.fixture
def schedo_app(pytestconfig: pytest.Config) -> Schedo:
    """The application under test; override this fixture, or set `schedo_app` in the ini file."""
    target = str(pytestconfig.getini("schedo_app"))
    if not target:
        raise pytest.UsageError(
            "the fixture schedo_tester needs an application: set schedo_app = module:attribute in"
            " the configuration of pytest, or define a fixture schedo_app that returns it"
        )
    from schedo import Schedo
    from schedo.worker.process.child import TargetError, load_target

    try:
        app = load_target(target)
    except (TargetError, ImportError) as error:
        raise pytest.UsageError(f"schedo_app = {target}: {error}") from error
    assert isinstance(app, Schedo), f"{target} is not a Schedo object"
    return app


@pytest.fixture
def schedo_tester(request: pytest.FixtureRequest, schedo_app: Schedo) -> Iterator[Tester]:
    """A Tester of the application; its options are those of the marker `schedo`."""
    from schedo.testing import Tester

    marker = request.node.get_closest_marker("schedo")
    with Tester(schedo_app, **(marker.kwargs if marker else {})) as tester:
        yield tester
