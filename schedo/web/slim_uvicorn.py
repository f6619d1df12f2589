"""uvicorn without its supervisors, which start processes and watch source files.

The package imports them, and with them multiprocessing: 1.1 MB for what a server in one process
never uses. So an empty module takes their place, unless the program has imported uvicorn before.
"""

from __future__ import annotations

import sys
from types import ModuleType

_NAME = "uvicorn.supervisors"

if _NAME not in sys.modules:
    _supervisors = ModuleType(_NAME)
    vars(_supervisors).update(Multiprocess=None, ChangeReload=None)
    sys.modules[_NAME] = _supervisors

import uvicorn  # noqa: E402  # after the empty module is in place

__all__ = ["uvicorn"]
