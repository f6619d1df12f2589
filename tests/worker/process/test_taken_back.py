"""Leases that a server has decided on, and takes back before a child process has them."""

from __future__ import annotations

import pytest

from tests.worker.site import Site


async def test_a_server_that_is_no_longer_sure_of_its_jobs_takes_their_leases_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, False]
    monkeypatch.setattr(site.engine.sessions, "may_start", lambda: not answers or answers.pop())

    records = [await site.run("add", a=n, b=1) for n in range(3)]

    assert [each["result"] for each in records] == [1, 2, 3]
    assert [(each["failures"], each["losses"]) for each in records] == [(0, 0)] * 3
    assert not answers
