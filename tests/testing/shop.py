"""The application under test: an online shop that sends mails, retries and reports."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime

from schedo import Retry, Schedo, current_job, report_progress

app = Schedo()
sent: list[str] = []
threads: list[threading.Thread] = []


@app.task(queue="mail")
async def send_email(to: str, subject: str = "hello", *, at: datetime | None = None) -> str:
    if to == "nobody":
        raise LookupError("there is no such address")
    sent.append(f"{subject} to {to}")
    return to


@app.task(retry=Retry(max_attempts=3, backoff="fixed", initial="10m", jitter=0.0))
async def charge(succeeds_at: int) -> int:
    report_progress(50, "asking the bank")
    if current_job().attempt < succeeds_at:
        raise ConnectionError("the bank does not answer")
    return current_job().attempt


@app.task
def sign_up(to: str) -> None:
    threads.append(threading.current_thread())
    send_email.enqueue_sync(to, "welcome")
    send_email.options(delay="3d").enqueue_sync(to, subject="how is it going?")


@app.task(timeout="30s", retries=0)
async def hang() -> None:
    await asyncio.Event().wait()


@app.task
async def count_items(count: int, queue: str = "") -> int:
    return count


@app.cron("0 9 * * *", tz="Europe/Paris")
async def report() -> None:
    sent.append(f"report of {current_job().scheduled_for:%d %b %H:%M}")
