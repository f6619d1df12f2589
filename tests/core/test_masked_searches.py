"""A search for jobs does not find the secret of a built-in task, which responses mask."""

from __future__ import annotations

import pytest

from schedo.core.built_in import show_payload
from schedo.core.job_filter import PayloadCondition


@pytest.mark.parametrize(
    ("task", "payload", "searched"),
    [
        ("http", b'{"url":"u","secret":"abc"}', b'{"url":"u","secret":"***"}'),
        ("http", b'{"secret": 5}', b'{"secret":"***"}'),
        ("http", b'{"\\u0073ecret":"abc"}', b'{"secret":"***"}'),
        ("http", b'{"url":"\\n"}', b'{"url":"\\n"}'),
        ("http", b'["secret"]', b'["secret"]'),
        ("http", b'{"secret":null}', b'{"secret":null}'),
        ("http", b'{"url":"u"}', b'{"url":"u"}'),
        ("mail", b'{"secret":"abc"}', b'{"secret":"abc"}'),
    ],
)
def test_a_search_for_a_text_sees_a_mask_in_place_of_the_secret(
    task: str, payload: bytes, searched: bytes
) -> None:
    assert show_payload(task, payload) == searched


@pytest.mark.parametrize(("task", "is_found"), [("http", False), ("mail", True)])
def test_a_condition_on_the_secret_finds_no_job_of_its_task(task: str, is_found: bool) -> None:
    condition = PayloadCondition(("secret",), "abc")

    assert condition.matches(task, b'{"secret":"abc"}') is is_found
