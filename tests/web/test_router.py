"""The router finds the endpoint of a path, and the parameters in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from schedo.web.router import Router

PATHS = ("/jobs", "/jobs/{id}:run", "/jobs/{id}", "/jobs/{id}/output", "/a.b/{name}")


@pytest.mark.parametrize(
    ("path", "found", "parameters"),
    [
        ("/jobs", "/jobs", {}),
        ("/jobs/7", "/jobs/{id}", {"id": "7"}),
        ("/jobs/7:run", "/jobs/{id}:run", {"id": "7"}),
        ("/jobs/7/output", "/jobs/{id}/output", {"id": "7"}),
        ("/jobs/", "none", {}),
        ("/jobs/7/", "none", {}),
        ("/jobs/7\n", "/jobs/{id}", {"id": "7\n"}),
        ("/jobs/{id}", "/jobs/{id}", {"id": "{id}"}),
        ("/axb/c", "none", {}),
        ("", "none", {}),
    ],
)
def test_a_path_has_the_first_endpoint_that_matches(
    path: str, found: str, parameters: dict[str, str]
) -> None:
    served: list[tuple[str, dict[str, str]]] = []

    def endpoint(name: str) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            served.append((name, scope["path_params"]))

        return serve

    async def call() -> None:
        unused: Any = None
        router = Router({each: endpoint(each) for each in PATHS}, endpoint("none"))
        await router({"path": path}, unused, unused)

    asyncio.run(call())

    assert served == [(found, parameters)]
