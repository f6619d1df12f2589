"""The application that the workers of compose.yaml run."""

import asyncio

from schedo import Schedo, report_progress

app = Schedo()


@app.task
def greet(name: str) -> str:
    """Return at once: schedo submit greet name=Ada --wait."""
    return f"Hello, {name}."


@app.task(retries=3, timeout="1m")
async def count(to: int) -> int:
    """Take a second for each number: schedo submit count to=20."""
    for number in range(1, to + 1):
        report_progress(100 * number / to, f"{number} of {to}")
        await asyncio.sleep(1)
    return to


@app.cron("* * * * *")
def every_minute() -> None:
    """Run once a minute, on one of the workers."""
    print("a minute has passed")
