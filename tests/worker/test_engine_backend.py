"""Requests and progress from the workers of the server's own machine."""

from __future__ import annotations

from typing import Any, cast

import pytest

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress
from schedo.engine.engine import Engine
from schedo.worker.engine_backend import note_progress

KEY = LeaseKey(1, 1, 1)


class ProgressReader:
    """The part of an engine that receives progress."""

    def __init__(self) -> None:
        self.noted: list[Progress] = []

    def note_progress(self, progress: Progress) -> None:
        self.noted.append(progress)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (ProgressUpdate(float("nan"), "m"), ProgressUpdate(None, "m")),
        (ProgressUpdate(float("inf")), ProgressUpdate()),
        (ProgressUpdate(-0.1, log="l"), ProgressUpdate(log="l")),
        (ProgressUpdate(10**30), ProgressUpdate()),
        (ProgressUpdate(100), ProgressUpdate(100)),
        (
            ProgressUpdate(message="a\0\ud800" + "b" * 2_000),
            ProgressUpdate(message="a\ufffd?" + "b" * 997),
        ),
        (ProgressUpdate(log="a" * 20_000 + "\0"), ProgressUpdate(log="a" * 16_383 + "\ufffd")),
        (ProgressUpdate(stdout="a" * 70_000 + "b"), ProgressUpdate(stdout="a" * 65_535 + "b")),
    ],
    ids=["nan", "inf", "negative", "huge", "whole", "message", "log", "output"],
)
def test_progress_is_cut_to_the_limits(said: ProgressUpdate, wanted: ProgressUpdate) -> None:
    engine: Any = ProgressReader()

    note_progress(cast(Engine, engine), KEY, said)

    assert engine.noted == [Progress(KEY, wanted)]
