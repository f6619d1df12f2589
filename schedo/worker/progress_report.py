"""Converts progress updates to the engine's messages; only for processes with an engine."""

from __future__ import annotations

from schedo.core.model import LeaseKey
from schedo.core.value_limits import fit_progress
from schedo.core.worker_messages import Progress
from schedo.tasks.progress import Said


def to_word(key: LeaseKey, update: Said) -> Progress:
    """Return the update as a message to the engine."""
    return Progress(key, *fit_progress(update.percent, update.message, update.log, update.output))
