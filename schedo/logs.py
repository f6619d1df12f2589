"""Log lines written by a thread of their own.

A slow stderr must not stall the timers, so the loop only puts records into a queue.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue

from schedo.log_format import LogFormat, hold_libraries_back, make_handler


def start_logging(
    form: LogFormat, level: str, *, has_application: bool = False
) -> logging.handlers.QueueListener:
    """Send all logging to stderr through a queue; stop the returned listener to flush.

    The level is that of schedo's own lines, and of the lines of an application that runs in this
    process. What others write below a warning may hold anything: payloads, secrets, requests.
    """
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, make_handler(form))
    root = logging.getLogger()
    root.handlers = [_Enqueue(records)]
    hold_libraries_back()
    logging.getLogger("schedo").setLevel(level.upper())
    root.setLevel(level.upper())
    if not has_application:
        root.setLevel(max(root.level, logging.WARNING))
    listener.start()
    return listener


class _Enqueue(logging.handlers.QueueHandler):
    """Hands records over as they are: the formatters need the traceback and the extra fields."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with its message filled in while the arguments are as they were."""
        record.message = record.getMessage()
        return record
