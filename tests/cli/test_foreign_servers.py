"""Commands whose address leads to another program, or to a server of another version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply

JSON = {"Content-Type": "application/json"}
REPLIES = {
    "an object": Reply(200, b'{"ok": true}', JSON),
    "a list": Reply(200, b'[{"id": 1}]', JSON),
    "no list of records": Reply(200, b'{"items": [1]}', JSON),
    "other records": Reply(200, b'{"items": [{"id": 7}]}', JSON),
    "a deep list": Reply(200, b"[" * 100_000, JSON),
    "a page": Reply(200, b"<html>", {"Content-Type": "text/html"}),
    "nothing": Reply(200),
    "a redirect": Reply(302, b"", {"Location": "https://sso.example.org/login"}),
    "events of others": Reply(200, b"data: [1]\n\n", {"Content-Type": "text/event-stream"}),
}
ASKING = """
    run true|run --cron @daily --name n true|submit t|submit t --wait|invoke t|invoke t --dry-run
    jobs ls|jobs show J|jobs why J|jobs history J|jobs attempts J|jobs output J|jobs progress J
    jobs cancel J|jobs delete J|jobs run J|jobs wait J|jobs delete --state failed --yes
    operations ls|operations show 1|operations undo 1
    schedules ls|schedules show n|schedules fires n|schedules pause n|schedules rm n
    schedules trigger n|schedules put n --every 1m true
    expectations ls|expectations show n|expectations beat n|expectations rm n
    queues ls|queues pause n|queues set n --concurrency 1|workers ls|workers show n|workers drain n
    status|cluster|open --print|summary|failures|log|events|names|timeseries|stats|top --once
    pause starts|resume|export|clock advance 5s|cron explain @daily --others
"""
COMMANDS = [each.strip() for line in ASKING.split("\n") for each in line.split("|") if each.strip()]


def answer_everything(server: FakeServer, monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    monkeypatch.setattr(server, "next_reply", lambda method, target: reply)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_command_says_in_one_line_that_no_schedo_server_has_answered(
    server: FakeServer,
    schedo: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    reply: Reply,
    form: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    answer_everything(server, monkeypatch, reply)

    for command in COMMANDS:
        result = schedo(*command.split(), *form)

        found = (command, result.exit_code, len(result.stderr.splitlines()), result.exception)
        assert found[:3] == (command, 1, 1), found
        assert "schedo server" in result.stderr, command
        assert server.url in result.stderr, command
        if form:
            assert json.loads(result.stderr)["code"] == "not-schedo", command


def test_the_message_has_the_request_and_what_the_address_answered(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_everything(server, monkeypatch, REPLIES["a redirect"])

    assert schedo("queues", "ls").stderr == (
        "schedo: this is not a schedo server: it answered 302, a redirect to"
        f" https://sso.example.org/login (GET /v1/queues at {server.url})\n"
    )


def test_what_a_command_cannot_read_is_told_with_the_place(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/queues", 200, {"items": [{"name": 7}]})

    stderr = schedo("queues", "ls").stderr

    assert stderr.startswith(f"schedo: cannot read what {server.url} answered: it is no schedo")
    assert "(AttributeError: " in stderr


def test_a_page_is_no_backup(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for reply in REPLIES.values():
        answer_everything(server, monkeypatch, reply)

        result = schedo("backup", str(tmp_path / "copy.db"))

        assert (result.exit_code, [*tmp_path.iterdir()]) == (1, [])
        assert "this is not a schedo server" in result.stderr


def test_files_and_crontabs_are_not_put_to_another_server(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    declared, crontab = tmp_path / "jobs.toml", tmp_path / "crontab"
    declared.write_text('[schedules.a]\nevery = "1m"\ntask = "t"\n')
    crontab.write_text("* * * * * true\n")
    for reply in REPLIES.values():
        answer_everything(server, monkeypatch, reply)

        for args in (["apply", str(declared)], ["crontab", "import", str(crontab)]):
            result = schedo(*args)

            assert result.exit_code == 1
            assert "schedo server" in result.stderr


@pytest.mark.parametrize("fields", [{"code": "no-capacity", "considered": "many"}, {"code": [1]}])
def test_the_error_of_another_program_has_its_text(
    server: FakeServer, schedo: Call, fields: dict[str, object]
) -> None:
    server.on("GET", "/v1/queues", 503, {"detail": "the pool is empty", **fields})

    assert schedo("queues", "ls").stderr == "schedo: the pool is empty\n"
