"""The application of test_pauses.py and test_seclusion.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from schedo import Schedo

app = Schedo()


@app.task
async def rest(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.task
async def pid() -> int:
    return os.getpid()


@app.task
def look_at_parent() -> str:
    """Return the server's environment, or why it cannot be read."""
    try:
        return Path(f"/proc/{os.getppid()}/environ").read_text()
    except OSError as error:
        return type(error).__name__
