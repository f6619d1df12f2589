"""A file that exists while a worker takes jobs: for supervisors, because a worker has no port.

A rolling update in Kubernetes waits for it, so a new version that cannot reach its server, or is
refused by it, replaces no pod.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schedo.errors import Invalid


def check_ready_file(path: str | os.PathLike[str]) -> Path:
    """Return the path without its file, which an earlier process may have left.

    Raises Invalid if no file can be made there.
    """
    file = Path(path)
    try:
        file.touch()
        file.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise Invalid(f"ready_file = {str(path)!r}: cannot be written: {reason}") from error
    return file


@contextmanager
def existing_file(file: Path) -> Iterator[None]:
    """Keep the file during the block."""
    file.touch()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
