"""The application of test_pauses.py and test_hardening.py."""

from __future__ import annotations

import asyncio
import os
import sys
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
    """Return the server's environment, or the error of reading it."""
    try:
        return Path(f"/proc/{os.getppid()}/environ").read_text().replace("\0", "\n")
    except OSError as error:
        return type(error).__name__


@app.task
async def echo(text: str) -> str:
    return text


@app.task(retries=0)
async def fail(text: str) -> None:
    raise ValueError(text)


@app.task(retries=0)
async def garble(text: str) -> None:
    """Send bytes to the server that are not a frame."""
    descriptor = next(a.partition("=")[2] for a in sys.argv if a.startswith("--fd="))
    body = b"\xa4" + text.encode()
    os.write(int(descriptor), len(body).to_bytes(4, "big") + body)
