"""Settings that every test shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

# pytest explains failed assertions of an imported module only if the module is registered here.
pytest.register_assert_rewrite("tests.store.contract")

# A shared machine can be slow, so examples have no deadline; a failure prints how to replay it.
settings.register_profile("schedo", deadline=None, print_blob=True)
settings.load_profile("schedo")
