"""JobView, the base of the clients' job handles: the last known record of a job."""

from __future__ import annotations

from typing import Any

from schedo.client.errors import job_failed
from schedo.client.messages import Record
from schedo.core.states import FINAL, State


def is_final(record: Record) -> bool:
    """Return whether the job's state is final."""
    return record.get("state") in FINAL


class JobView:
    """The last known record of a job, with the fields of the server's response."""

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def state(self) -> State:
        return State(self.record["state"])

    @property
    def task(self) -> str:
        return str(self.record["task"])

    @property
    def is_final(self) -> bool:
        return is_final(self.record)

    @property
    def has_outcome(self) -> bool:
        """Whether the record has how the job ended; those of submit_many have only its state."""
        return self.is_final and "attempt" in self.record

    @property
    def is_conflict(self) -> bool:
        """Whether the submit returned this existing job, which holds the unique key."""
        return bool(self.record.get("conflict"))

    def read_result(self) -> Any:
        """Return the job's result; raise JobFailed, or TimeoutError if it has not ended."""
        if not self.is_final:
            raise TimeoutError(f"job {self.id} is still {self.state}")
        if self.state is not State.COMPLETED:
            raise job_failed(self.record)
        return self.record.get("result")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.task} {self.state}>"
