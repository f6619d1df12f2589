"""The command that adds an entry to the log of changes."""

from __future__ import annotations

from schedo.core.action_log import LogEntry
from schedo.core.commands import Command


class NoteChange(Command[None], frozen=True):
    """Commit the entry together with the changes of this step."""

    entry: LogEntry
