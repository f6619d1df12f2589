"""A real server notices what does not come in time, once, although it is killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.server import Server, serving

pytestmark = pytest.mark.e2e

FAILING = {"task": "shell", "payload": {"command": "exit 3"}}


class Receiver:
    """A receiver of webhooks; a call that is repeated after a kill has the same id."""

    def __init__(self) -> None:
        events: dict[str, tuple[str, Any]] = {}
        self._events = events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                events[self.headers["webhook-id"]] = (self.path, orjson.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The paths and the bodies, one for each job, in the order of the first calls."""
        return list(self._events.values())

    def hook(self, path: str) -> dict[str, Any]:
        """Return an event job that calls the path."""
        url = f"http://127.0.0.1:{self._http.server_port}{path}"
        return {"task": "http", "payload": {"url": url}}

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds; the time limit of the test bounds it."""
    while not holds():
        time.sleep(0.01)


def state(server: Server, kind: str, name: str) -> str:
    found = server.ask("GET", f"/v1/{kind}/{name}")[1]
    return str(found.get("expectation", found)["state"])


def test_the_break_and_the_return_each_call_a_webhook_once_over_a_kill(
    tmp_path: Path, receiver: Receiver
) -> None:
    options = ("--allow-shell", "--webhook-allow", "127.0.0.1")
    jobs = {"on_miss": receiver.hook("/miss"), "on_back": receiver.hook("/back")}
    with serving(tmp_path, *options) as server:
        expect = {"within": "500ms", **jobs}
        run = {"task": "shell", "payload": {"command": "true"}, "paused": True}
        server.ask("PUT", "/v1/schedules/s", {"every": "1s", **run, "expect": expect})
        server.ask("PUT", "/v1/expectations/laptop", {"every": "1s", "within": "500ms", **jobs})
        until(lambda: len(receiver.events) == 2)
        server.kill()

    with serving(tmp_path, *options) as server:
        assert state(server, "schedules", "s") == state(server, "expectations", "laptop")
        server.ask("DELETE", "/v1/schedules/s")
        server.ask("POST", "/v1/expectations/laptop/beat", {})
        until(lambda: len(receiver.events) == 3)

    paths = [path for path, _ in receiver.events]
    assert paths == ["/miss", "/miss", "/back"]
    assert {body.get("schedule", body.get("name")) for _, body in receiver.events[:2]} == {
        "s",
        "laptop",
    }
    assert receiver.events[2][1]["name"] == "laptop"


def test_a_run_that_is_lost_with_a_killed_server_is_noticed_once_and_its_return_once(
    tmp_path: Path, receiver: Receiver
) -> None:
    options = ("--allow-shell", "--webhook-allow", "127.0.0.1")
    mended = tmp_path / "mended"
    run = {"task": "shell", "payload": {"command": f"test -e {mended} || sleep 600"}}
    jobs = {"on_miss": receiver.hook("/miss"), "on_back": receiver.hook("/back")}
    with serving(tmp_path, *options) as server:
        server.ask(
            "PUT", "/v1/schedules/s", {"every": "1s", **run, "expect": {"within": "2s", **jobs}}
        )
        until(lambda: bool(server.ask("GET", "/v1/jobs?state=running")[1]["items"]))
        server.kill()

    with serving(tmp_path, *options) as server:
        until(lambda: bool(receiver.events))
        mended.touch()
        for job in server.ask("GET", "/v1/jobs?state=running&task=shell")[1]["items"]:
            server.ask("POST", f"/v1/jobs/{job['id']}:cancel", {})
        until(lambda: len(receiver.events) == 2)
        missed = server.ask("GET", "/v1/schedules/s")[1]["expectation"]["missed"]

    assert [path for path, _ in receiver.events] == ["/miss", "/back"]
    assert missed > 0


def test_a_failed_job_calls_a_webhook_and_runs_a_command_with_the_facts(
    tmp_path: Path, receiver: Receiver
) -> None:
    note = {"task": "shell", "payload": {"command": "echo $SCHEDO_FAILED_ERROR_EXIT_CODE"}}
    page = "https://ops.example.org/schedo"
    with serving(
        tmp_path, "--allow-shell", "--webhook-allow", "127.0.0.1", "--public-url", page
    ) as server:
        first = server.submit(**FAILING, on_failure=receiver.hook("/failed"))
        server.submit(**FAILING, on_failure=note)
        until(lambda: bool(receiver.events))
        until(lambda: read_outputs(server) == ["3\n"])

    ((path, body),) = receiver.events
    assert (path, body["id"], body["error"]["exit_code"]) == ("/failed", first["id"], 3)
    assert body["url"] == f"{page}/jobs/{first['id']}"


def read_outputs(server: Server) -> list[str]:
    """Return the output of the completed commands."""
    jobs = server.ask("GET", "/v1/jobs?task=shell&state=completed")[1]["items"]
    outputs = [server.ask("GET", f"/v1/jobs/{job['id']}/output")[1]["items"] for job in jobs]
    return [each["text"] for output in outputs for each in output]
