"""Notices changes of source files, for `schedo serve --reload`.

It compares the times and sizes of all Python files below a folder, every half a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.5
_NAMED_MAX = 3
_SKIPPED = frozenset({"__pycache__", "node_modules"})
Files = dict[str, tuple[int, int]]  # the time of the last change, in nanoseconds, and the size

log = logging.getLogger("schedo.worker")


class SourceWatch:
    """Watches the Python files below a folder; `on_change` is called when changes have ended.

    files: as the last look found them.
    """

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self.files: Files = dict(_scan(folder))
        self._changed: set[str] = set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            self.look(await asyncio.to_thread(lambda: dict(_scan(self._folder))))

    def look(self, files: Files) -> None:
        """Compare the files with those of the last look.

        An editor or a checkout writes several files, so the call waits for a look without a change.
        """
        changed = {path for path, _ in files.items() ^ self.files.items()}
        self.files = files
        if changed:
            self._changed |= changed
        elif self._changed:
            names = sorted(os.path.relpath(path, self._folder) for path in self._changed)
            more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            log.info("reload: %s%s changed", ", ".join(names[:_NAMED_MAX]), more)
            self._changed.clear()
            self._on_change()


def _scan(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the Python files; hidden folders and virtual environments are left out."""
    for path, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        for name in names:
            if name.endswith(".py"):
                found = os.path.join(path, name)
                try:
                    status = os.stat(found)
                except OSError:  # it was removed meanwhile
                    continue
                yield found, (status.st_mtime_ns, status.st_size)
