"""uvicorn and the router of starlette, without modules that they import and the server never uses.

uvicorn's supervisors import multiprocessing (1.1 MB), and starlette's form parsers import tempfile,
shutil and the compression libraries (0.7 MB). An empty module takes the place of each, unless the
program has imported the real one before. The server reads no forms, and it is one process.
"""

from __future__ import annotations

import sys
from types import ModuleType

_UNUSED = {
    "uvicorn.supervisors": ("Multiprocess", "ChangeReload"),
    "starlette.formparsers": ("FormParser", "MultiPartException", "MultiPartParser"),
}

for _name, _members in _UNUSED.items():
    if _name not in sys.modules:
        _empty = ModuleType(_name)
        vars(_empty).update(dict.fromkeys(_members))
        sys.modules[_name] = _empty

import uvicorn  # noqa: E402  # after the empty modules are in place
from starlette.routing import Route, Router  # noqa: E402

__all__ = ["Route", "Router", "uvicorn"]
