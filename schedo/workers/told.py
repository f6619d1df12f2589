"""What was said of an attempt, as the engine takes it; not for processes without an engine."""

from __future__ import annotations

from schedo.core.fitting import fit_progress
from schedo.core.model import LeaseKey
from schedo.engine.asks import Progress
from schedo.workers.progress import Said


def to_word(key: LeaseKey, said: Said) -> Progress:
    """Return what was said as the engine takes it."""
    return Progress(key, *fit_progress(said.percent, said.message, said.log, said.output))
