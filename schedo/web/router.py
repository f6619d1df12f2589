"""Finds the endpoint of a path.

Starlette's router would load forms, cookies and an HTTP client, which take 1.5 MB.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

_PARAMETER = re.compile(r"\{(\w+)\}")


class Router:
    """The ASGI application of a table of paths, in which {name} stands for one part of a path.

    If several paths with parameters match, the first one wins. default: serves all other paths.
    """

    def __init__(self, endpoints: Mapping[str, ASGIApp], default: ASGIApp) -> None:
        self._fixed = {path: each for path, each in endpoints.items() if "{" not in path}
        self._patterns = [(_compile(path), each) for path, each in endpoints.items() if "{" in path]
        self._default = default

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        endpoint, scope["path_params"] = self._find(scope["path"])
        return endpoint(scope, receive, send)

    def _find(self, path: str) -> tuple[ASGIApp, dict[str, str]]:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for pattern, endpoint in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return endpoint, found.groupdict()
        return self._default, {}


def _compile(path: str) -> re.Pattern[str]:
    fixed_and_names = _PARAMETER.split(path)
    fixed_and_names[::2] = map(re.escape, fixed_and_names[::2])
    fixed_and_names[1::2] = [f"(?P<{name}>[^/]+)" for name in fixed_and_names[1::2]]
    return re.compile("".join(fixed_and_names))
