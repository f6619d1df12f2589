"""The ids of traces and spans, derived from those of the jobs.

So the attempts of a job are in one trace whatever crashes, and nothing has to be stored for it: not
even for a job whose submitter has sent no trace context. The store's own number keeps the ids
of two servers apart that make jobs in the same microsecond.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from schedo.core.model import DecisionRecord, LeaseKey

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_PACKERS = [struct.Struct(f">{count}q").pack for count in range(4)]


class SpanIds:
    """Derives the ids for the jobs of one store."""

    def __init__(self, store_id: int) -> None:
        self._base = blake2b(digest_size=_TRACE_BYTES, key=struct.pack(">q", store_id))

    def trace(self, job_id: int) -> int:
        """Return the id of the trace of a job that has none from its submitter."""
        return self._derive(_TRACE_BYTES, b"trace", job_id)

    def decision_trace(self, decision: DecisionRecord) -> int:
        """Return the id of the trace of a decision: that of its job, if it has one."""
        if decision.job_id is not None:
            return self.trace(decision.job_id)
        return self._derive(_TRACE_BYTES, b"decision", decision.schedule_id, decision.scheduled_for)

    def submit(self, job_id: int) -> int:
        """Return the id of the span of a job's submit."""
        return self._derive(_SPAN_BYTES, b"submit", job_id)

    def attempt(self, key: LeaseKey) -> int:
        """Return the id of the span of an attempt."""
        return self._derive(_SPAN_BYTES, b"attempt", *key)

    def decision(self, decision: DecisionRecord) -> int:
        """Return the id of the span of a decision."""
        kind = decision.decision.value.encode()
        return self._derive(_SPAN_BYTES, kind, decision.schedule_id, decision.scheduled_for)

    def _derive(self, size: int, kind: bytes, *numbers: int) -> int:
        made = self._base.copy()  # a third of the time of a new one
        made.update(kind + _PACKERS[len(numbers)](*numbers))
        return int.from_bytes(made.digest()[:size], "big") or 1  # 0 means that there is no id
