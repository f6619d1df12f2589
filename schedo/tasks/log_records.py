"""Log records that name the job whose handler made them."""

from __future__ import annotations

import logging
from typing import Any

from schedo.core.ids import render_id
from schedo.tasks.current_job import find_context

NO_JOB = "-"


def name_jobs_in_logs() -> None:
    """Give every log record the job, task and attempt of the handler that logs it.

    Formats use them as %(schedo_job)s, %(schedo_task)s and %(schedo_attempt)s; outside of a handler
    they are "-". The children of `schedo serve` and `schedo worker` do this themselves; an embedded
    program calls it before it logs.
    """
    make_record = logging.getLogRecordFactory()
    if hasattr(make_record, "schedo_made"):
        return

    def make_named_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        context = find_context()
        if context is None:
            record.schedo_job = record.schedo_task = record.schedo_attempt = NO_JOB
        else:
            lease = context.lease
            record.schedo_job = render_id(lease.key.job_id)
            record.schedo_task, record.schedo_attempt = lease.task, lease.key.attempt
        return record

    make_named_record.schedo_made = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_named_record)
