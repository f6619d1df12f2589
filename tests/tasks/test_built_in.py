"""Every task of the table has its code."""

from __future__ import annotations

import pytest

from schedo.core.built_in import BUILT_IN
from schedo.errors import Invalid
from schedo.tasks.built_in import RunnerSettings, make_runners, payload_checks


async def test_each_built_in_task_has_a_runner() -> None:
    settings = RunnerSettings(user_agent="schedo")

    runners = make_runners([*BUILT_IN, "of-an-application"], settings)

    assert runners.keys() == BUILT_IN.keys()
    for runner in runners.values():
        assert runner.not_ready_reasons() == []
        runner.close()


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_built_in_task_checks_its_payload(name: str) -> None:
    with pytest.raises(Invalid, match="/payload"):
        payload_checks()[name](b'{"nothing it knows": 1}')
