"""Runs a worker as a process: logging, signals, and the end with an exit code.

SIGTERM and SIGINT drain the worker. A second signal ends the grace time, a third one ends the
process at once. SIGHUP reads the token again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from schedo.errors import Exit, SchedoError
from schedo.garbage import collect_seldom
from schedo.log_format import LogFormat
from schedo.logs import start_logging
from schedo.loops import end_loop, end_process, new_loop
from schedo.tasks.hooks import LifespanFailed
from schedo.tasks.task_output import TaskOutput, keep_task_output
from schedo.worker.remote.worker import Worker
from schedo.worker.shutdown import handle_hangup, handle_signals

log = logging.getLogger("schedo.worker")


def run_worker(
    worker: Worker,
    log_format: LogFormat = "text",
    log_level: str = "info",
    *,
    read_token: Callable[[], str | None],
    explain: Callable[[SchedoError], str] = str,
) -> NoReturn:
    """Run the worker until a signal, the server or an error ends it; end the process then.

    read_token: reads the token again, after a SIGHUP. explain: says what went wrong, for the user.
    """
    listener = start_logging(log_format, log_level, has_application=True)
    output = keep_task_output(log_format)
    os.umask(0o077)
    collect_seldom()
    runner = asyncio.Runner(loop_factory=new_loop)
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    runner.get_loop().set_default_executor(threads)
    code, refusal, has_ended = int(Exit.DONE), "", False
    try:
        runner.run(_run(worker, read_token, output))
    except SchedoError as error:
        code, refusal = Exit.REFUSED, explain(error)
        if isinstance(error, LifespanFailed):
            log.error("the startup of the application failed", exc_info=error.__cause__)
    except SystemExit as error:  # in a task that a handler has started: it ends the loop
        code = error.code if isinstance(error.code, int) else Exit.REFUSED
    finally:
        has_ended = end_loop(runner, threads)
        if not has_ended:
            log.warning("the process ends although a handler has ignored its stop")
        listener.stop()  # writes the remaining log lines
    if refusal:
        print(f"schedo: {refusal}", file=sys.stderr, flush=True)
    end_process(code, at_once=not has_ended)


async def _run(worker: Worker, read_token: Callable[[], str | None], output: TaskOutput) -> None:
    output.loop = asyncio.get_running_loop()

    def reload() -> None:
        try:
            is_new = worker.use_token(read_token())
        except SchedoError as error:
            log.error("reload: %s; the token stays as it is", error)
            return
        log.info("reload: changed the token" if is_new else "reload: nothing has changed")

    handle_signals(worker.stop, worker.stop_now)
    handle_hangup(reload)
    await worker.run()
