"""A gRPC server in front of a World, and what calls it: the official client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage
from starlette.types import ASGIApp

from schedo.grpc import schedo_pb2 as pb
from schedo.grpc.calls import METHODS
from schedo.grpc.server import GrpcServer
from schedo.web.server import bind
from tests.web.world import World

PREFIX = "/schedo.v1.Schedo/"
DEADLINE_S = 10.0
RESPONSES: dict[str, Any] = {
    "Submit": pb.Job,
    "SubmitBatch": pb.SubmitBatchResponse,
    "Get": pb.Job,
    "Cancel": pb.Job,
    "Invoke": pb.InvokeResponse,
}


class Refusal(NamedTuple):
    """How a call failed; reason: the code of the HTTP API; fields: what is wrong with which."""

    code: grpc.StatusCode
    detail: str
    reason: str
    fields: dict[str, str]
    retry_s: int | None


class Client:
    """Calls a server at an address."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        self.channel = grpc.aio.insecure_channel(
            address, [("grpc.max_receive_message_length", 16_777_216)]
        )
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    async def call(
        self, name: str, deadline_s: float = DEADLINE_S, metadata: Any = (), **fields: Any
    ) -> Any:
        """Return the response to a call with these fields; raise AioRpcError."""
        request = METHODS[PREFIX + name].request
        answer = self.channel.unary_unary(
            PREFIX + name, request.SerializeToString, RESPONSES[name].FromString
        )
        return await answer(
            request(**fields), timeout=deadline_s, metadata=(*self._metadata, *metadata)
        )

    async def refused(self, name: str, **fields: Any) -> Refusal:
        """Return how such a call fails."""
        try:
            response = await self.call(name, **fields)
        except grpc.aio.AioRpcError as error:
            return read_refusal(error)
        raise AssertionError(f"the call succeeded: {response}")

    def work(self) -> Stream:
        """Open the stream of a worker."""
        call = self.channel.stream_stream(
            PREFIX + "Work", pb.WorkRequest.SerializeToString, pb.WorkResponse.FromString
        )
        return Stream(call(metadata=self._metadata))


class Stream:
    """The stream of a worker."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._seq = 0

    async def send(self, **fields: Any) -> int:
        """Send a message with the next number, and return the number."""
        self._seq += 1
        await self._call.write(pb.WorkRequest(seq=self._seq, **fields))
        return self._seq

    async def ask(self, **fields: Any) -> pb.WorkResponse:
        """Send a message, and return the response to it, which is the next one."""
        seq = await self.send(**fields)
        response = await self.next()
        assert response.seq == seq, response
        return response

    async def next(self) -> pb.WorkResponse:
        """Return the next response or push."""
        async with asyncio.timeout(DEADLINE_S):
            response = await self._call.read()
        assert response is not grpc.aio.EOF, await self._call.details()
        assert isinstance(response, pb.WorkResponse)
        return response

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """Return the status with which the server ends the stream, and its text."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    if await self._call.read() is grpc.aio.EOF:
                        break
                except grpc.aio.AioRpcError:
                    break
            return await self._call.code(), await self._call.details()

    def leave(self) -> None:
        """End the stream as a worker that dies."""
        self._call.cancel()


def read_refusal(error: grpc.aio.AioRpcError) -> Refusal:
    details = StatusMessage()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            details.ParseFromString(value)
    reason, fields, retry_s = "", {}, None
    for each in details.details:
        for kind in (ErrorInfo, BadRequest, RetryInfo):
            detail = kind()
            if not each.Unpack(detail):
                continue
            if isinstance(detail, ErrorInfo):
                reason = detail.reason
            elif isinstance(detail, BadRequest):
                fields = {one.field: one.description for one in detail.field_violations}
            else:
                retry_s = detail.retry_delay.seconds
    return Refusal(error.code(), error.details() or "", reason, fields, retry_s)


class Served(NamedTuple):
    """A server and a client of it."""

    world: World
    server: GrpcServer
    client: Client


@asynccontextmanager
async def serving(
    world: World,
    token: str | None = None,
    find_app: Callable[[], ASGIApp] | None = None,
    sockets: Sequence[socket.socket] = (),
) -> AsyncIterator[Served]:
    """Serve the world over gRPC during the block; its application answers unless another does."""
    server = GrpcServer(world.app, find_app or (lambda: world.app))
    sockets = sockets or await bind("127.0.0.1", 0)
    server.listen(sockets)
    client = Client(f"127.0.0.1:{sockets[0].getsockname()[1]}", token)
    try:
        yield Served(world, server, client)
    finally:
        await client.channel.close()
        world.app.drain()
        await server.stop(grace_s=1.0)
