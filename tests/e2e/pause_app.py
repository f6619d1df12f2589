"""The application of test_pauses.py."""

from __future__ import annotations

import asyncio
import os

from schedo import Schedo

app = Schedo()


@app.task
async def rest(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.task
async def pid() -> int:
    return os.getpid()
