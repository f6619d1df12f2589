"""Kills this process at a point of its code, which the variable TAKEOVER_FAILPOINT names.

Python imports this module at its start if its folder is on PYTHONPATH, so the code under test knows
nothing of it. A point is `before` or `after`, the module, the function and the number of the call:
`before schedo.server.server Server.open 1`. A process that gets to the point dies by SIGKILL. The
calls on the scratch file of a standby that becomes warm do not count.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Changes the function when its module is imported."""

    def __init__(self, when: str, module: str, function: str, call: int) -> None:
        self._when, self._module, self._function, self._call = when, module, function, call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None, f"there is no module {fullname}"
        assert spec.loader is not None, fullname
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _change(self, module: ModuleType) -> None:
        *owners, name = self._function.split(".")
        owner: Any = functools.reduce(getattr, owners, module)
        setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = itertools.count(1)

        def is_it(owner: object) -> bool:
            path = str(getattr(owner, "path", ""))
            return not path.endswith("/scratch.db") and next(calls) == self._call

        @functools.wraps(function)
        async def run_async(*arguments: Any, **named: Any) -> Any:
            is_point = is_it(*arguments[:1])
            _die(is_point and self._when == "before")
            result = await function(*arguments, **named)
            _die(is_point)
            return result

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            is_point = is_it(*arguments[:1])
            _die(is_point and self._when == "before")
            result = function(*arguments, **named)
            _die(is_point)
            return result

        return run_async if inspect.iscoroutinefunction(function) else run


def _die(is_now: bool) -> None:
    if is_now:
        os.kill(os.getpid(), signal.SIGKILL)


if _point := os.environ.pop("TAKEOVER_FAILPOINT", ""):
    _when, _module, _function, _number = _point.split()
    sys.meta_path.insert(0, _Finder(_when, _module, _function, int(_number)))
