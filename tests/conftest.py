"""Settings that every test shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A module of claims that others import gets pytest's explanations only if it is named here.
pytest.register_assert_rewrite("tests.store.contract")

# A shared machine is slow now and then, so examples have no deadline; a failure says how to replay.
settings.register_profile("schedo", deadline=None, print_blob=True)
settings.load_profile("schedo")
