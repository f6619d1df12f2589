"""The log contains no secret at any level."""

from __future__ import annotations

import http.client
import socket
import urllib.parse
from pathlib import Path

import pytest

from tests.e2e.remote import worker
from tests.e2e.server import Server, serving
from tests.sources import ROOT

pytestmark = pytest.mark.e2e
TOKEN = "token-of-the-server-0123456789abcdef"
WORKER_TOKEN = "token-of-a-worker-0123456789abcdef"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NAMED_SECRET = "whsec_bmFtZWQtc2VjcmV0LW9mLXRoZS1zZXJ2ZXI="


def mark(place: str) -> str:
    return f"hush-{place}-hush"


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def send(server: Server, method: str, path: str, body: bytes, **headers: str) -> None:
    """Send the bytes of a request; ignore the response."""
    host = urllib.parse.urlsplit(server.url).netloc
    connection = http.client.HTTPConnection(host, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"content-type": "application/json", **named})
        connection.getresponse().read()
    finally:
        connection.close()


def submit_and_wait(server: Server, **job: object) -> None:
    server.ended(server.submit(**job)["id"])


def run_jobs(server: Server) -> None:
    """Run jobs of all kinds, with a secret in each field."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    submit_and_wait(
        server,
        task="http",
        payload={
            "url": f"http://127.0.0.1:{port}/{mark('url-path')}?token={mark('url-query')}",
            "headers": {"authorization": f"Bearer {mark('http-header')}"},
            "body": {"a": mark("http-body")},
            "secret": SECRET,
        },
        meta={"m": mark("meta")},
    )
    command = f"echo {mark('stdout')}; echo {mark('stderr')} >&2; exit 1"
    submit_and_wait(
        server,
        task="shell",
        payload={"command": command, "env": {"KEY": mark("env")}, "stdin": mark("stdin")},
    )
    submit_and_wait(server, task="echo", payload={"text": mark("result")})
    submit_and_wait(server, task="fail", payload={"text": mark("argument")})
    submit_and_wait(server, task="garble", payload={"text": mark("frame")})


def send_requests(server: Server) -> None:
    """Send valid and invalid requests, with a secret in each field."""
    token = {"authorization": f"Bearer {TOKEN}"}
    for method, path in [
        ("GET", f"/v1/jobs/{mark('path')}"),
        ("GET", f"/{mark('path')}"),
        ("GET", f"/v1/jobs?tag={mark('query')}&cursor={mark('cursor')}"),
        ("GET", f"/v1/schedules/{mark('path')}"),
        ("POST", f"/v1/queues/{mark('path')}:pause"),
    ]:
        send(server, method, path, b"", **token)
    body = f'{{"task":"http","payload":{{"url":"{mark("bad-url")}"}}}}'.encode()
    send(server, "POST", "/v1/jobs", body, **token, idempotency_key=mark("key"))
    send(server, "POST", "/v1/jobs", b'{"' + mark("bad-body").encode(), **token)
    send(server, "GET", "/v1/info", b"", authorization=f"Bearer {mark('wrong-token')}")
    send(server, "GET", "/v1/info", b"", **token, cookie=mark("cookie"), host=mark("host"))
    schedule = f'{{"every":"1h","task":"echo","payload":{{"text":"{mark("schedule")}"}}}}'
    send(server, "PUT", "/v1/schedules/s", schedule.encode(), **token)


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_contains_no_secret_and_no_payload(tmp_path: Path, form: str) -> None:
    files = {
        "--token-file": write(tmp_path / "token", TOKEN),
        "--worker-tokens": write(tmp_path / "workers", f"{WORKER_TOKEN} queues=far\n"),
        "--webhook-secrets-file": write(tmp_path / "secrets", f'hook = "{NAMED_SECRET}"\n'),
    }
    options = ["tests.e2e.small_app:app", "--allow-shell", "--webhook-allow", "127.0.0.1"]
    options += ["--log-level", "debug", "--log-format", form]
    options += [word for pair in files.items() for word in pair]
    with serving(tmp_path, *options, PYTHONPATH=str(ROOT)) as server:
        server.token = TOKEN
        run_jobs(server)
        send_requests(server)
        debug = ["--allow-shell", "--log-level", "debug", "--token-file", files["--token-file"]]
        with worker(server, "w1", *debug, "--queues", "far") as far:
            line = f"echo {mark('far-stdout')}"
            env = {"KEY": mark("far-env")}
            submit_and_wait(
                server, task="shell", queue="far", payload={"command": line, "env": env}
            )
            far_log = far.log()
        server.terminate()
        log = server.log()

    assert "listens on" not in log, "that is for stdout"
    assert "schedo" in log, "the log is looked at"
    for secret in (TOKEN, WORKER_TOKEN, SECRET, NAMED_SECRET, "hush-"):
        found = [line for line in (log + far_log).splitlines() if secret in line]
        assert not found, found
