"""What an application in a child process requests of its server."""

from __future__ import annotations

from schedo.app.options import make_job
from schedo.protocol.frames import BackendRequest, BackendResponse, encode_frame
from schedo.protocol.jobs import SubmittedJob
from schedo.worker.process.backend_client import ChildBackend


async def test_a_batch_that_is_too_large_for_a_frame_is_sent_in_parts() -> None:
    sent: list[int] = []

    def send(request: BackendRequest) -> None:
        encode_frame(request)
        numbers = [int(spec.payload.split(b" ")[1]) for spec in request.specs]
        sent.append(len(numbers))
        tickets = [SubmittedJob(number, False) for number in numbers]
        backend.receive(BackendResponse(request.number, [*tickets]))

    backend = ChildBackend(send)
    template = make_job("task")
    payloads = [b'"' + b"x" * 20_000 + b" %d " % number + b'"' for number in range(1_000)]

    submitted = await backend.submit([(template, payload) for payload in payloads])

    assert [each.number for each in submitted if isinstance(each, SubmittedJob)] == [*range(1_000)]
    assert len(sent) > 4
