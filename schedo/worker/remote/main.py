"""Runs a worker as a process: logging, signals and the exit code.

SIGTERM and SIGINT drain the worker. A second signal ends the grace time, a third one ends the
process at once. SIGHUP reads the token again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from schedo.errors import Exit, SchedoError
from schedo.garbage import collect_seldom
from schedo.log_format import LogFormat
from schedo.logs import start_logging
from schedo.loops import new_loop
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
) -> int:
    """Run the worker until a signal, the server or an error ends it; return the exit code.

    read_token: reads the token again, after a SIGHUP.
    """
    listener = start_logging(log_format, log_level, has_application=True)
    output = keep_task_output(log_format)
    os.umask(0o077)
    collect_seldom()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run(worker, read_token, output))
        return Exit.DONE
    except SchedoError as error:
        refusal = str(error)
        if isinstance(error, LifespanFailed):
            log.error("the startup of the application failed", exc_info=error.__cause__)
    finally:
        listener.stop()  # writes the remaining log lines
    print(f"schedo: {refusal}", file=sys.stderr, flush=True)
    return Exit.REFUSED


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
