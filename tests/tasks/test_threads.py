"""Calls in threads: each runs once, or not at all if no thread could be started for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from schedo.tasks.threads import HandlerThreads, call_in_some_thread, call_in_thread


async def test_a_call_returns_its_value_or_raises_its_error() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert await call_in_thread(threads.submit, threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await call_in_thread(threads.submit, lambda: 1 // 0)


async def test_a_call_that_is_cancelled_before_a_thread_is_free_does_not_run() -> None:
    busy = threading.Event()
    ran: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        threads.submit(busy.wait)
        ended = call_in_thread(threads.submit, lambda: ran.append(1))

        ended.cancel()
        busy.set()

    assert ran == []


async def test_a_call_that_a_free_thread_takes_runs_though_no_thread_could_be_started() -> None:
    with ThreadPoolExecutor(1) as threads:

        def submit(run: object) -> None:
            threads.submit(run).result()  # type: ignore[arg-type]
            raise RuntimeError("can't start new thread")

        assert await call_in_thread(submit, lambda: 1) == 1


async def test_a_call_that_cannot_wait_for_a_thread_runs_at_once(no_new_thread: None) -> None:
    assert await call_in_some_thread(threading.get_ident) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await call_in_some_thread(lambda: 1 // 0)


async def test_a_call_that_waits_gets_the_thread_that_is_added() -> None:
    busy = threading.Event()
    with HandlerThreads(1) as threads:
        threads.submit(busy.wait)
        ended = call_in_thread(threads.submit, lambda: 1)
        try:
            threads.add_one()
            async with asyncio.timeout(5):
                assert await ended == 1
        finally:
            busy.set()


async def test_a_thread_is_added_later_if_none_can_be_started_now(no_new_thread: None) -> None:
    with HandlerThreads(1) as threads:
        threads.add_one()
