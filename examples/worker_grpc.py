"""A schedo worker that speaks gRPC: python3 examples/worker_grpc.py [NAME].

It needs grpcio and schedo's messages: in a clone, pip install '.[grpc]' grpcio.

It implements the part "gRPC" of docs/protocol.md with several jobs at a time. SCHEDO_GRPC is the
address of the server, and the first argument the name of the worker. Without schedo's own messages,
generate them from schedo/grpc/schedo.proto.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys

try:
    import grpc

    from schedo.grpc import schedo_pb2 as pb
except ModuleNotFoundError as error:
    sys.exit(f"{error}; in a clone of schedo: pip install '.[grpc]' grpcio")

ENDING = (
    grpc.StatusCode.UNAUTHENTICATED,  # the token is missing or wrong
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,  # another process has this worker's name
    grpc.StatusCode.INVALID_ARGUMENT,
)
BUSY = (429, 503, 507)  # the same message can succeed later
RESULT_BYTES_MAX = 8_388_000  # the server ends the stream at a message above 8 MiB


class Job:
    """A running attempt, for its handler."""

    def __init__(self, worker, lease):
        self._worker, self.lease = worker, lease
        self.stop_reason = ""  # "cancel" or "timeout", once the handler is asked to stop
        self.is_abandoned = False  # the server has given the job to another worker
        self.output = ""
        self._progress = pb.Progress(lease=lease.lease)

    def progress(self, **update):
        """Report percent, message or both; the server keeps the last report as a whole."""
        self._progress.MergeFrom(pb.Progress(**update))
        self._send(self._progress)

    def log(self, line):
        """Add a line to the output of the attempt."""
        self.output += line + "\n"
        self._send(self._progress, pb.Progress(log=line))

    def _send(self, *parts):
        report = pb.Progress()
        for part in parts:
            report.MergeFrom(part)
        self._worker.send(pb.WorkRequest(progress=[report]))


class Worker:
    """Runs jobs of a server until it drains; handlers are `async def handler(payload, job)`."""

    def __init__(self, address, handlers, *, name, slots=1, token=None):
        self._address, self._handlers = address, handlers
        self._me = {
            "worker": name,
            "session": os.urandom(8).hex(),
            "tasks": list(handlers),
            "slots": slots,
        }
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._running = {}  # tasks by lease
        self._jobs = {}  # by lease
        self._results = {}  # those that the server has not confirmed, by lease
        self._numbers = itertools.count(2)
        self._sent = {}  # the lease of the result in a message, by its seq
        self._outbox = None  # while there is a stream
        self._is_draining = False

    async def run(self):
        """Return when the worker has drained; raise AioRpcError if it must end."""
        failures = 0
        while True:
            try:
                async with grpc.aio.insecure_channel(self._address) as channel:
                    async for _ in self._speak(channel):
                        failures = 0
                if self._is_draining:
                    return
            except grpc.aio.AioRpcError as error:
                print(error.code(), error.details(), file=sys.stderr)
                if error.code() in ENDING:
                    self._give_up()
                    raise
            finally:
                self._outbox = None
            if self._is_draining and not (self._running or self._results):
                return  # there is nothing that the server should still hear
            failures += 1
            await asyncio.sleep(random.random() * longest_pause_s(failures))

    def drain(self):
        """Take no more jobs; the running ones go on."""
        self._is_draining = True
        self.send(pb.WorkRequest(draining=True))

    def stop_now(self):
        """Give the running jobs back."""
        for task in self._running.values():
            task.cancel()

    def send(self, message):
        """Send a message if there is a stream; results are sent again with the next one."""
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    async def _speak(self, channel):
        """Send and receive on one stream; yield after each response."""
        work = channel.stream_stream(
            "/schedo.v1.Schedo/Work",
            request_serializer=pb.WorkRequest.SerializeToString,
            response_deserializer=pb.WorkResponse.FromString,
        )
        stream = work(metadata=self._metadata)
        self._sent = {}
        self._outbox = asyncio.Queue()
        # The first message says what the worker has, so that the server keeps these attempts. Their
        # results follow one by one: together they can be too large for a message.
        leases = [*self._running, *self._results]
        self.send(pb.WorkRequest(**self._me, seq=1, running=leases, draining=self._is_draining))
        writing = asyncio.create_task(self._write(stream))
        try:
            async for response in stream:
                self._take(response)
                yield response
        finally:
            writing.cancel()

    async def _write(self, stream):
        while True:
            await stream.write(await self._outbox.get())

    def _take(self, response):
        self._note_answer(response.seq, response.problem)
        for lease in response.leases:
            job = self._jobs[lease.lease] = Job(self, lease)
            self._running[lease.lease] = asyncio.create_task(self._run(job))
        for stop in response.stop:
            if stop.lease in self._running:
                self._jobs[stop.lease].stop_reason = stop.reason
                self._running[stop.lease].cancel()
        for lease in response.revoked:
            if lease in self._running:
                self._jobs[lease].is_abandoned = True
                self._running[lease].cancel()
        if response.drain and not self._is_draining:
            self.drain()

    def _note_answer(self, seq, problem):
        if seq == 1:  # the server knows the worker now
            for lease in self._results.keys() - self._sent.values():
                self._report(lease)
        elif seq in self._sent:
            self._confirm(self._sent.pop(seq), problem)

    def _confirm(self, lease, problem):
        if not problem.status:
            self._results.pop(lease, None)
        elif problem.status in BUSY:
            asyncio.get_running_loop().call_later(1, self._report, lease)
        else:  # the server will never take this result
            self._results[lease] = refused(lease, problem.detail)
            self._report(lease)

    def _report(self, lease):
        if lease in self._results and self._outbox is not None:
            number = next(self._numbers)
            self._sent[number] = lease
            self.send(pb.WorkRequest(seq=number, results=[self._results[lease]]))

    async def _run(self, job):
        lease = job.lease.lease
        result = pb.Result(lease=lease)
        try:
            if self._is_draining:
                raise asyncio.CancelledError  # it was on its way
            value = await self._handlers[job.lease.task](json.loads(job.lease.payload), job)
            result.outcome, result.result = "completed", json.dumps(value)
        except asyncio.CancelledError:
            result.outcome = "stopped" if job.stop_reason else "released"
        except Exception as error:
            result.outcome = "failed"
            result.error.type, result.error.message = type(error).__name__, str(error)
        if job.output:
            result.output.add(stream="stdout", text=job.output)
        del self._running[lease], self._jobs[lease]
        if result.ByteSize() > RESULT_BYTES_MAX:
            result = refused(lease, "the result and its output are larger than 8 MiB")
        if not job.is_abandoned:
            self._results[lease] = result
            self._report(lease)

    def _give_up(self):
        for job in self._jobs.values():
            job.is_abandoned = True
        self.stop_now()


def refused(lease, why):
    """Return what is reported in place of a result that the server will never take."""
    reason = pb.Failure(type="result-refused", message=why)
    return pb.Result(lease=lease, outcome="failed", error=reason, retryable=False)


def longest_pause_s(failures):
    """Return the longest time to wait after this many failures in a row, in seconds."""
    return min(5, 0.025 * 2 ** min(failures, 8))


async def increment(payload, job):
    return {"Num": payload["Num"] + 1}


async def main():
    name = sys.argv[1] if len(sys.argv) > 1 else f"grpc-{os.getpid()}"
    address = os.environ.get("SCHEDO_GRPC", "127.0.0.1:9090")
    token = os.environ.get("SCHEDO_TOKEN")
    worker = Worker(address, {"increment": increment}, name=name, slots=8, token=token)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.drain)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
