"""TLS in front of a connection: the same limits hold, from the first byte of a client on."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import ssl
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from schedo.server.tls import read_tls
from schedo.web.connection_stages import HEAD_DEADLINE_S
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from schedo.web.tls import HANDSHAKE_BYTES_MAX
from tests.certificates import Authority
from tests.web.connecting import HEAD, connected, post, respond, talk, turn
from tests.web.world import World

LAST = b"Connection: close\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def secure(world: World, authority: Authority) -> AsyncIterator[tuple[HttpServer, int]]:
    pair = authority.issue("server")
    tls = read_tls(str(pair.cert), str(pair.key))
    world.app.use(dataclasses.replace(WebSettings(), tls=tls))
    server = HttpServer(connections_max=3)
    port = await server.start(world.app, "127.0.0.1", 0)
    yield server, port
    await server.stop(grace_s=0.2)


class Client:
    """TLS on buffers in memory, so that a test decides which bytes the server gets."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    async def connect(self, port: int) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(self.hello())
        while True:
            self._incoming.write(await reader.read(65_536))
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            writer.write(self._outgoing.read())
            return reader, writer

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._outgoing.read()


async def open_tls(port: int, authority: Authority) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port, ssl=authority.client())


async def ended(reader: asyncio.StreamReader) -> bool:
    """Return whether the server ends the connection without a byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


async def test_requests_follow_each_other_on_one_encrypted_connection(
    secure: tuple[HttpServer, int], authority: Authority
) -> None:
    reader, writer = await open_tls(secure[1], authority)

    for _ in range(3):
        writer.write(HEAD + b"\r\n")
        assert await respond(reader) == (200, False, b'{"status":"ok"}')
    writer.write(HEAD + LAST)

    assert (await respond(reader))[1]
    assert await reader.read() == b""
    writer.close()


async def test_a_body_of_many_records_arrives_whole(
    secure: tuple[HttpServer, int], authority: Authority
) -> None:
    reader, writer = await open_tls(secure[1], authority)

    writer.write(post(b'{"task":"a","payload":{"text":"%b"}}' % (b"x" * 700_000)))
    status, _, body = await respond(reader)

    assert (status, body[:7]) == (201, b'{"id":"')
    writer.close()


async def test_a_client_without_tls_learns_what_the_port_speaks(
    secure: tuple[HttpServer, int],
) -> None:
    answer = await talk(secure[1], HEAD + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 400 TLS required\r\n")
    assert b"must begin with https://" in answer


@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)
async def test_a_client_may_choose_the_version(
    secure: tuple[HttpServer, int], authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    reader, writer = await asyncio.open_connection("127.0.0.1", secure[1], ssl=context)

    writer.write(HEAD + b"\r\n")

    assert (await respond(reader))[0] == 200
    assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
    writer.close()


async def test_bytes_that_are_no_handshake_end_the_connection(
    secure: tuple[HttpServer, int],
) -> None:
    server, port = secure

    answer = await talk(port, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")

    assert answer[:1] == b"\x15"  # an alert
    await connected(server, 0)


async def test_a_broken_record_ends_the_connection(
    secure: tuple[HttpServer, int], authority: Authority
) -> None:
    server, port = secure
    client = Client(authority.client())
    _, writer = await client.connect(port)
    record = bytearray(client.encrypt(HEAD + b"\r\n"))
    record[-1] ^= 1

    writer.write(bytes(record))

    await connected(server, 0)
    writer.close()


# The limits, also during the handshake.


async def test_a_handshake_counts_as_a_connection(
    secure: tuple[HttpServer, int], authority: Authority
) -> None:
    server, port = secure
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    await connected(server, 3)

    reader, writer = await open_tls(port, authority)  # beyond the limit: it gets one response
    writer.write(HEAD + b"\r\n")

    assert (await respond(reader))[1]
    for _, each in silent:
        each.close()
    writer.close()


async def test_more_than_twice_the_limit_of_handshakes_is_closed_at_once(
    secure: tuple[HttpServer, int],
) -> None:
    server, port = secure
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
    await connected(server, 6)

    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    assert await asyncio.wait_for(ended(reader), 5)
    for _, each in (*silent, (reader, writer)):
        each.close()


@pytest.mark.parametrize("part", [0, 50], ids=["no byte", "a part of the hello"])
async def test_a_handshake_has_the_deadline_of_a_head(
    secure: tuple[HttpServer, int], authority: Authority, part: int
) -> None:
    server, port = secure
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(Client(authority.client()).hello()[:part])
    await connected(server)
    (connection,) = server.connections
    while connection.undecrypted != part:
        await turn()

    connection.check_deadline(asyncio.get_running_loop().time() + HEAD_DEADLINE_S + 1)

    assert await asyncio.wait_for(ended(reader), 5)
    await connected(server, 0)
    writer.close()


async def test_an_endless_hello_is_cut_off(secure: tuple[HttpServer, int]) -> None:
    server, port = secure
    length = HANDSHAKE_BYTES_MAX * 2
    # Records of 16 KiB that say to be parts of one hello.
    record = b"\x16\x03\x01\x40\x00"
    hello = b"\x01" + length.to_bytes(3, "big") + b"\x03\x03" + bytes(16_384 - 6)

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for data in (record + hello, record + bytes(16_384), record + bytes(16_384)):
        writer.write(data)

    assert await asyncio.wait_for(ended(reader), 5)
    await connected(server, 0)
    writer.close()


async def test_the_bytes_of_an_incomplete_record_are_in_the_account(
    secure: tuple[HttpServer, int], authority: Authority, world: World
) -> None:
    server, port = secure
    client = Client(authority.client())
    _, writer = await client.connect(port)
    record = client.encrypt(b"GET /" + b"a" * 9_000)
    await connected(server)
    (connection,) = server.connections

    writer.write(record[:-1])
    while connection.undecrypted != len(record) - 1:
        await turn()
    connection.check_deadline(asyncio.get_running_loop().time())

    account = world.app.context.in_flight
    assert (connection.held, account.by_connections) == (len(record) - 1, len(record) - 1)
    writer.transport.abort()
    await connected(server, 0)
    assert account.by_connections == 0


async def test_what_a_client_does_not_read_is_in_the_account(
    secure: tuple[HttpServer, int], authority: Authority, world: World
) -> None:
    server, port = secure
    world_job = await world.submit(task="a", payload={"text": "x" * 900_000})
    reader, writer = await open_tls(port, authority)
    cast(asyncio.Transport, writer.transport).pause_reading()
    await connected(server)
    (connection,) = server.connections
    request = b"GET /v1/jobs/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % world_job["id"].encode()

    for _ in range(40):
        writer.write(request)
    while not connection.outgoing.is_unread:
        await turn()

    assert connection.held > 0
    assert world.app.context.in_flight.by_connections >= connection.outgoing.kept_bytes > 0
    cast(asyncio.Transport, writer.transport).resume_reading()
    assert (await respond(reader))[0] == 200
    writer.close()


async def test_a_closed_connection_is_freed_without_the_garbage_collector(
    secure: tuple[HttpServer, int], authority: Authority
) -> None:
    server, port = secure
    reader, writer = await open_tls(port, authority)
    writer.write(HEAD + b"\r\n")
    await respond(reader)
    gone = weakref.ref(server.connections[0])
    gc.disable()
    try:
        writer.close()
        await connected(server, 0)
        for _ in range(5):
            await turn()
        assert gone() is None
    finally:
        gc.enable()


# A change of the certificate.


async def test_the_next_connection_gets_the_new_certificate(
    secure: tuple[HttpServer, int], authority: Authority, world: World, tmp_path: Path
) -> None:
    _, port = secure
    reader, writer = await open_tls(port, authority)
    other = Authority(tmp_path, "other")
    pair = other.issue("server")
    tls = read_tls(str(pair.cert), str(pair.key))

    world.app.use(dataclasses.replace(WebSettings(), tls=tls))

    with pytest.raises(ssl.SSLCertVerificationError):
        await open_tls(port, authority)
    _, newer = await open_tls(port, other)
    writer.write(HEAD + b"\r\n")
    assert (await respond(reader))[0] == 200
    for each in (writer, newer):
        each.close()
