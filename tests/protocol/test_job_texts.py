"""Jobs rendered from a template have the same text as jobs rendered one by one."""

from __future__ import annotations

import orjson
import pytest
from msgspec.structs import replace

from schedo.core.model import PLAIN, Failure, Job, Options, Retry, Trigger
from schedo.core.states import State
from schedo.protocol.job_texts import JobTexts
from schedo.protocol.jobs import job_fields

OPTIONS = Options(retry=Retry(max_attempts=7), timeout_us=90_000_000)
TAGGED = replace(OPTIONS, tags=("a", "b"), meta={"é": [1.5, None]})
NEW = {"task": "work", "queue": "mail", "options": OPTIONS, "created_at": 17, "due_at": 17}


def job(number: int, **fields: object) -> Job:
    made = Job(id=2**60 + number, state=State.QUEUED, **NEW)  # type: ignore[arg-type]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"payload": b'{"text":"\\u0000 \xc3\xa9"}'},
        {"payload": b"x" * 101},
        {"payload": None},
        {"task": "other"},
        {"queue": "other"},
        {"priority": 3},
        {"options": PLAIN},
        {"options": TAGGED},
        {"state": State.SCHEDULED, "due_at": 5_000_000},
        {"created_at": 18},
        {"expires_at": 90_000_000},
        {"unique_key": "key"},
        {"state": State.RUNNING, "attempt": 1, "picked_at": 18, "started_at": 18, "worker": "w"},
        {"state": State.CANCELLED, "ended_at": 18, "failure": Failure("cancelled", "no")},
        {"trigger": Trigger.INVOKE},
        {"task": "http", "payload": b'{"url":"http://a","signing_secret":"s"}'},
    ],
    ids=str,
)
def test_every_job_has_the_same_text_as_alone(fields: dict[str, object]) -> None:
    texts = JobTexts(inline_bytes_max=100)
    jobs = [job(1), job(2, **fields), job(3, **fields), job(4)]

    rendered = [texts.render(each) for each in jobs]

    assert rendered == [orjson.dumps(job_fields(each, inline_bytes_max=100)) for each in jobs]


def test_jobs_of_any_number_of_tasks_can_be_rendered() -> None:
    texts = JobTexts(inline_bytes_max=100)
    jobs = [job(number, task=f"task{number}") for number in range(200)]

    assert [texts.render(each) for each in jobs] == [
        orjson.dumps(job_fields(each)) for each in jobs
    ]
