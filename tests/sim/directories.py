"""The directories of one world's SQLite files, one for each server."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

# A file system in memory, where a sync costs nothing.
MEMORY = Path("/dev/shm")


class Files:
    """The directories of one world."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self._number = 0
        self.directory = self.add()

    def add(self) -> Path:
        """Return a new directory."""
        self._number += 1
        directory = self._root / str(self._number)
        directory.mkdir(mode=0o700)
        return directory

    def copy(self) -> Path:
        """Return a copy of the current files, as a crash at this moment leaves them."""
        kept = self.add()
        for file in sorted(self.directory.iterdir()):
            if not file.name.endswith("-shm"):
                shutil.copy(file, kept)
        return kept

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._root)
