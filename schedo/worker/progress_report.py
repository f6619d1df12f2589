"""What was said of an attempt, as the engine takes it; not for processes without an engine."""

from __future__ import annotations

from schedo.core.model import LeaseKey
from schedo.core.value_limits import fit_progress
from schedo.engine.worker_messages import Progress
from schedo.tasks.progress import Said


def to_word(key: LeaseKey, said: Said) -> Progress:
    """Return what was said as the engine takes it."""
    return Progress(key, *fit_progress(said.percent, said.message, said.log, said.output))
