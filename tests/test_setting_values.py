"""Values of settings that are more than a kind of value."""

from __future__ import annotations

import pytest

from schedo.config import load_config
from schedo.errors import Invalid


def test_the_objective_for_lateness_is_a_bound_of_the_histograms() -> None:
    assert load_config({}, {}, []).lateness_objective_us == 10_000
    assert load_config({"lateness_objective": "0.5s"}, {}, []).lateness_objective_us == 500_000

    with pytest.raises(Invalid) as caught:
        load_config({"lateness_objective": "15ms"}, {}, [])

    assert str(caught.value).startswith(
        "lateness_objective = '15ms' (flag --lateness-objective): expected one of 50us, 100us,"
    )
