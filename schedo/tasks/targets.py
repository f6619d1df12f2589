"""Texts that name an application, as in myapp:app."""

from __future__ import annotations

import os.path
import re

_PATH = re.compile(r"/|\.py$|^\.")
_EXAMPLE = "myapp"


def explain_path(target: str) -> str | None:
    """Return what to write instead of a text that names a file; None: it does not."""
    path, _, attribute = target.partition(":")
    if not _PATH.search(path):
        return None
    module = os.path.basename(path).removesuffix(".py").strip(".") or _EXAMPLE
    return (
        f"this names a file; write {module}:{attribute or 'app'}, the name of the module without"
        ' its path and without ".py", in the directory that contains it'
    )
