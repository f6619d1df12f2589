"""Logging through a queue and a thread, so that a slow stderr does not block the event loop."""

from __future__ import annotations

import logging
import queue
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from schedo.log_format import LogFormat, make_handler, quiet_libraries


class _Late(ModuleType):
    """A module that is imported when something uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if "pickle" in sys.modules:
    import logging.handlers
else:  # half a megabyte, which only handlers need that send records elsewhere
    sys.modules["pickle"] = _Late("pickle")
    try:
        import logging.handlers
    finally:
        del sys.modules["pickle"]


def start_logging(
    form: LogFormat, level: str, *, has_application: bool = False
) -> logging.handlers.QueueListener:
    """Send all logging to stderr through a queue; stop the returned listener to flush.

    The level applies to schedo's own messages and, with has_application, to those of all other
    code. Without it, other code logs only warnings and errors, because its messages below that may
    contain payloads, secrets or requests.
    """
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, make_handler(form))
    root = logging.getLogger()
    root.handlers = [_Enqueue(records)]
    quiet_libraries()
    set_level(level)
    root.setLevel(level.upper())
    if not has_application:
        root.setLevel(max(root.level, logging.WARNING))
    listener.start()
    return listener


def set_level(level: str) -> None:
    """Set the lowest level of schedo's own messages."""
    logging.getLogger("schedo").setLevel(level.upper())


class _Enqueue(logging.handlers.QueueHandler):
    """Queues records unchanged, because the formatters need the traceback and the extra fields."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Render the message now, because its arguments may change before the thread does it."""
        record.message = record.getMessage()
        return record
