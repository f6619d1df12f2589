"""HTTPS by the server itself: its clients, a new certificate, and the next process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.client import AsyncClient, Client, Unreachable
from schedo.client.tls import VARIABLE
from schedo.errors import Invalid, SchedoError
from schedo.loops import new_loop
from tests.certificates import Authority, Pair
from tests.e2e.remote import worker
from tests.e2e.server import Server, eventually, serving
from tests.e2e.test_standby import standing_by
from tests.e2e.test_upgrade import upgradable

pytestmark = pytest.mark.e2e

ECHO = {"command": "echo encrypted"}


class Secured:
    """A CA, and the files of a server that it has issued."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.pair = self.authority.issue("server")

    def trusting(self, server: Server) -> Server:
        server.tls = self.authority.client()
        return server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), *secured.pair.options) as server:
        yield secured.trusting(server)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("plain")) as server:
        yield server


async def count_async(url: str, ca_cert: str | None) -> int:
    async with AsyncClient(url, ca_cert=ca_cert) as client:
        return len([job async for job in client.list_jobs()])


def count(url: str, ca_cert: str | None) -> int:
    with Client(url, ca_cert=ca_cert) as client:
        return len([*client.list_jobs()])


async def refusal_async(url: str, ca_cert: str | None) -> str:
    with pytest.raises(SchedoError) as refused:
        await count_async(url, ca_cert)
    return str(refused.value)


def refusals(url: str, ca_cert: str | None = None) -> list[str]:
    """Return the errors of both clients."""
    with pytest.raises(SchedoError) as refused:
        count(url, ca_cert)
    # The loop of the workers: asyncio's own leaves the socket of such a handshake to the collector.
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return [str(refused.value), runner.run(refusal_async(url, ca_cert))]


def schedo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
    return subprocess.run(
        [sys.executable, "-m", "schedo", *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


# Clients.


def test_both_clients_trust_the_ca_that_they_are_given(server: Server, secured: Secured) -> None:
    assert server.url.startswith("https://")
    assert count(server.url, secured.authority.cert) == 0
    assert asyncio.run(count_async(server.url, secured.authority.cert)) == 0


def test_the_variable_names_the_ca_for_programs_that_give_none(
    server: Server, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, secured.authority.cert)

    assert count(server.url, None) == asyncio.run(count_async(server.url, None)) == 0


def test_an_unknown_ca_is_an_error_that_says_how_to_trust_it(server: Server) -> None:
    for text in refusals(server.url):
        assert "its certificate is not accepted: unable to get local issuer" in text
        assert "--ca-cert or SCHEDO_CA_CERT" in text


def test_a_certificate_for_another_name_is_an_error_that_names_it(
    server: Server, secured: Secured
) -> None:
    url = server.url.replace("127.0.0.1", "localhost")

    for text in refusals(url, secured.authority.cert):
        assert "certificate is not valid for 'localhost'" in text
        assert "--ca-cert" not in text


def test_a_url_without_tls_is_an_error_that_names_https(server: Server) -> None:
    for text in refusals(server.url.replace("https", "http")):
        assert "the URL must begin with https://" in text


def test_tls_to_a_port_without_it_is_an_error_that_names_http(plain: Server) -> None:
    for text in refusals(plain.url.replace("http", "https")):
        assert "there is no TLS at this port; perhaps the URL must begin with http://" in text


def test_a_file_that_is_no_ca_is_an_error_that_names_it(server: Server, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path, reason in ((empty, "no certificate in PEM"), (tmp_path / "gone", "cannot be read")):
        with pytest.raises(Invalid, match=f"^ca_cert = '{path}': .*{reason}"):
            Client(server.url, ca_cert=str(path))


def test_a_ca_for_a_url_without_tls_is_an_error(secured: Secured) -> None:
    for url in ("http://127.0.0.1:1", "unix:/run/schedo.sock"):
        with pytest.raises(Invalid, match=f"'{url}': .*SCHEDO_CA_CERT.* only for an https:// URL"):
            Client(url, ca_cert=secured.authority.cert)


def test_nothing_is_sent_to_a_server_whose_certificate_is_not_accepted(server: Server) -> None:
    with pytest.raises(Unreachable, match=r"^cannot reach schedo at"):
        count(server.url, None)


def test_the_command_line_takes_the_ca_as_an_option_and_as_a_variable(
    server: Server, secured: Secured
) -> None:
    ca_cert = secured.authority.cert
    by_option = schedo("jobs", "ls", "--url", server.url, "--ca-cert", ca_cert)
    by_variable = schedo("jobs", "ls", SCHEDO_URL=server.url, SCHEDO_CA_CERT=ca_cert)
    without = schedo("jobs", "ls", "--url", server.url)

    assert (by_option.returncode, by_variable.returncode) == (0, 0), by_option.stderr
    assert without.returncode == 1
    assert "its certificate is not accepted" in without.stderr


def test_a_worker_runs_jobs_over_tls(secured: Secured, tmp_path: Path) -> None:
    options = ("--allow-shell", "--ca-cert", secured.authority.cert)
    with (
        serving(tmp_path, *secured.pair.options) as server,
        worker(secured.trusting(server), "w1", *options),
    ):
        job = server.submit(task="shell", payload=ECHO)

        assert server.ended(job["id"])["state"] == "completed"
        assert server.output(job["id"]) == "encrypted\n"


# The server.


def fingerprint(server: Server) -> str:
    """Return the certificate that the server shows to new connections."""
    port = int(server.url.rpartition(":")[2])
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


def hang_up(server: Server, reports: int) -> str:
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: server.log().count("reload: ") >= reports, "report of the reload")
    return server.log()


def test_a_hangup_reads_the_certificate_again_and_a_bad_one_changes_nothing(
    secured: Secured, tmp_path: Path
) -> None:
    pair = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    for source, used in zip(secured.pair, pair, strict=True):
        shutil.copy(source, used)
    renewed = secured.authority.issue("renewed")
    with serving(tmp_path, *pair.options) as server:
        shutil.copy(renewed.cert, pair.cert)
        log = hang_up(server, 1)  # the certificate is new, and the key is the old one
        assert "reload: tls_key = " in log
        assert "the settings stay as they are" in log
        assert fingerprint(server) == secured.pair.cert.read_text()

        shutil.copy(renewed.key, pair.key)
        log = hang_up(server, 2)
        assert "reload: changed tls_cert, tls_key\n" in log
        assert fingerprint(server) == renewed.cert.read_text()


def test_a_pair_that_cannot_be_used_ends_the_start_with_the_name_of_the_setting(
    secured: Secured, tmp_path: Path
) -> None:
    other = Authority(tmp_path).issue("other")
    options = Pair(secured.pair.cert, other.key).options

    refused = schedo("serve", "--store", str(tmp_path / "jobs.db"), "--port", "0", *options)

    assert refused.returncode == 2
    assert f"tls_key = '{other.key}': it is not the key" in refused.stderr


def test_an_upgrade_goes_on_with_tls(secured: Secured, tmp_path: Path) -> None:
    with upgradable(tmp_path, *secured.pair.options) as upgraded:
        server = secured.trusting(upgraded.server)
        with Client(server.url, ca_cert=secured.authority.cert) as client:
            job = client.submit("a", {}, delay="1h")
            old = upgraded.active_pid
            upgraded.upgraded()

            assert upgraded.active_pid != old
            assert [each.id for each in client.list_jobs()] == [job.id]


def test_a_standby_goes_on_with_tls(secured: Secured, tmp_path: Path) -> None:
    options = secured.pair.options
    with serving(tmp_path, *options) as active, standing_by(active, *options) as standby:
        secured.trusting(active)
        job = active.submit(task="a", delay="1h")
        active.kill()
        standby.wait_for_address()

        assert standby.url == active.url
        assert active.ask("GET", f"/v1/jobs/{job['id']}")[0] == 200
