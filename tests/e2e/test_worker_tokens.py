"""Worker tokens of a real server: the file, and the requests that they permit."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.server import DEADLINE_S, Server, serving

pytestmark = pytest.mark.e2e
MASTER = "correct-horse-battery-staple-0123456789"
IMAGES = "images-token-0123456789abcdef"


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def ask(server: Server, token: str, path: str, body: object = None) -> int:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_worker_token_is_valid_only_for_the_worker_protocol(tmp_path: Path) -> None:
    master = write(tmp_path / "token", MASTER)
    workers = write(tmp_path / "workers", f"{IMAGES} queues=images\n")
    with serving(tmp_path, "--token-file", master, "--worker-tokens", workers) as server:
        work = {"worker": "w1", "queues": ["images"]}
        assert ask(server, IMAGES, "/v1/work", work) == 200
        assert ask(server, IMAGES, "/v1/work", {**work, "queues": ["mail"]}) == 403
        assert ask(server, IMAGES, "/v1/jobs") == 403
        assert ask(server, "x" * 30, "/v1/work", work) == 401
        assert ask(server, MASTER, "/v1/workers/w1") == 200
        assert IMAGES not in server.log()


@pytest.mark.parametrize("text", ["", "short", f"{IMAGES} queues=a/b", f"{MASTER}"])
def test_a_server_with_a_bad_file_of_tokens_does_not_start(tmp_path: Path, text: str) -> None:
    master = write(tmp_path / "token", MASTER)
    workers = write(tmp_path / "workers", text)
    arguments = ["--port", "0", "--token-file", master, "--worker-tokens", workers]

    ended = subprocess.run(
        [sys.executable, "-m", "schedo", "serve", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert ended.returncode == 2
    assert "worker_tokens = " in ended.stderr
    assert IMAGES not in ended.stderr
    assert MASTER not in ended.stderr
