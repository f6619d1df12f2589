"""uvicorn and the router of Starlette, without modules that they import and the server never uses.

These modules would take 3 MB of each server: they start processes, read files of settings, parse
forms and cookies, run handlers in threads, write dates, and name types. A stand-in takes the place
of each while the two are imported, unless the program has imported the real module before. Later
imports get the real one.
"""

from __future__ import annotations

import sys
from types import ModuleType

_UNUSED = (
    "anyio",
    "anyio.abc",
    "configparser",
    "email.utils",
    "http.client",
    "logging.config",
    "shlex",
    "starlette._exception_handler",
    "starlette.concurrency",
    "starlette.formparsers",
    "starlette.middleware.body_limit",
    "starlette.requests",
    "starlette.responses",
    "starlette.websockets",
    "uvicorn._types",
    "uvicorn.main",
    "uvicorn.middleware.asgi2",
    "uvicorn.middleware.message_logger",
    "uvicorn.middleware.proxy_headers",
    "uvicorn.middleware.wsgi",
    "uvicorn.supervisors",
)


class _StandIn(ModuleType):
    """A module in which every name is None."""

    def __getattr__(self, name: str) -> None:
        return None


_stand_ins = {name: _StandIn(name) for name in _UNUSED if name not in sys.modules}
sys.modules.update(_stand_ins)
try:
    from starlette.routing import Route, Router
    from uvicorn.config import Config
    from uvicorn.server import Server
finally:
    for _name in _stand_ins:
        del sys.modules[_name]

__all__ = ["Config", "Route", "Router", "Server"]
