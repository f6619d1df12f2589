"""Errors, exit codes, help, completion and imports, which all commands have in common."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from schedo.cli.main import COMMANDS, cli
from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply, problem, schedule_record


def test_an_unreachable_server_is_reported_with_a_hint(schedo: Call) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = schedo("jobs", "ls", "--url", url)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"schedo: cannot reach schedo at {url}: connection refused; is `schedo serve` running? "
        "Give another address with --url or SCHEDO_URL\n"
    )


def test_a_missing_token_says_how_to_give_it(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 401, problem(401, "unauthorized", "the token is missing"))

    result = schedo("jobs", "ls")

    assert result.stderr == (
        "schedo: the token is missing; give the token with --token-file or SCHEDO_TOKEN\n"
    )


def test_a_server_error_is_reported_with_its_request_id(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 500, problem(500, "internal", "something went wrong"))

    result = schedo("jobs", "ls")

    assert result.stderr == "schedo: something went wrong; request r-1\n"


def test_control_characters_in_an_error_are_escaped(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 422, problem(422, "invalid", "\x1b[2J\nsecond line"))

    assert schedo("jobs", "ls").stderr == r"schedo: \x1b[2J\nsecond line" + "\n"


def test_a_response_of_another_kind_of_server_is_recognized(
    server: FakeServer, schedo: Call
) -> None:
    server.reply("GET", "/v1/jobs", Reply(200, b"<html>", {"Content-Type": "text/html"}))

    result = schedo("jobs", "ls")

    assert result.exit_code == 1
    assert "this is not a schedo server" in result.stderr


def test_a_wrong_token_is_called_wrong_without_a_hint_at_the_option(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/jobs", 401, problem(401, "unauthorized", "the token is wrong"))

    assert schedo("jobs", "ls").stderr == "schedo: the token is wrong\n"


def test_the_token_comes_from_a_file(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef0123\n")
    path.chmod(0o600)
    server.on("GET", "/v1/queues", 200, {"items": []})

    schedo("queues", "ls", "--token-file", str(path))

    assert server.requests[0].headers["authorization"] == "Bearer 0123456789abcdef0123"


def test_the_token_comes_from_the_environment(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDO_TOKEN", "0123456789abcdef0123")
    server.on("GET", "/v1/queues", 200, {"items": []})

    schedo("queues", "ls")

    assert server.requests[0].headers["authorization"] == "Bearer 0123456789abcdef0123"


def test_the_help_names_every_command(schedo: Call) -> None:
    result = schedo("--help")

    assert result.exit_code == 0
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


def test_an_unknown_command_is_exit_code_2_with_a_similar_name(schedo: Call) -> None:
    result = schedo("jbos")

    assert result.exit_code == 2
    assert "there is no command 'jbos'; did you mean jobs?" in result.stderr


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("why", "`schedo jobs why`?"),
        ("trigger", "`schedo schedules trigger`?"),
        ("list", "`schedo jobs ls` or `schedo operations ls` or `schedo schedules ls` or "),
    ],
)
def test_a_subcommand_without_its_group_is_told_with_the_groups_that_have_it(
    schedo: Call, word: str, hint: str
) -> None:
    result = schedo(word, "x")

    assert result.exit_code == 2
    assert f"there is no command '{word}'; did you mean {hint}" in result.stderr
    assert "did you mean" not in schedo("qqqqqq").stderr


def test_an_error_is_json_with_json(server: FakeServer, schedo: Call) -> None:
    places = [{"pointer": "/cron", "detail": "minute 61"}]
    server.on("GET", "/v1/jobs", 422, problem(422, "invalid", "the cron is wrong", errors=places))

    result = schedo("jobs", "ls", "--json")

    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr) == {
        "code": "invalid",
        "status": 422,
        "detail": "the cron is wrong; /cron: minute 61",
        "errors": places,
    }


@pytest.mark.parametrize(
    "args", [["jobs", "ls", "--limit", "0", "--json"], ["jobs", "set", "A", "--json"]], ids=str
)
def test_a_wrong_command_line_is_json_with_json(schedo: Call, args: list[str]) -> None:
    result = schedo(*args)

    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr)["code"] == "usage"


def commands(group: click.Group, path: str = "") -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        found.append((f"{path} {name}".strip(), command))
        if isinstance(command, click.Group):
            found += commands(command, f"{path} {name}".strip())
    return found


def test_every_command_has_help_and_every_option_too() -> None:
    silent = [path for path, command in commands(cli) if not command.get_short_help_str()]
    silent += [
        f"{path} {parameter.name}"
        for path, command in commands(cli)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help and parameter.name != "state"
    ]

    assert silent == []


def test_no_list_of_commands_cuts_what_a_command_does() -> None:
    groups = [command for _, command in commands(cli) if isinstance(command, click.Group)]
    texts = [group.get_help(click.Context(group, terminal_width=80)) for group in groups]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("Usage")]

    assert len(lines) > 100
    assert [line for line in lines if "..." in line] == []


def test_every_command_that_prints_has_json() -> None:
    without = {
        path
        for path, command in commands(cli)
        if not isinstance(command, click.Group)
        and not any("--json" in parameter.opts for parameter in command.params)
    }

    assert without == {"serve", "worker", "completion"}


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_completion_prints_a_script_for_the_shell(schedo: Call, shell: str) -> None:
    result = schedo("completion", shell)

    assert result.exit_code == 0
    assert "_SCHEDO_COMPLETE" in result.stdout


LOADED = """
import json, sys
from schedo.cli.main import cli
try:
    cli({args}, standalone_mode=False)
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("args", [["--help"], ["jobs", "ls", "--help"]], ids=str)
def test_a_client_command_loads_no_server(args: list[str]) -> None:
    program = LOADED.replace("{args}", repr(args))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    )

    loaded = set(json.loads(ended.stderr))
    assert not loaded & {
        *("uvicorn", "starlette", "uvloop", "aiosqlite", "asyncio", "sqlite3", "httptools"),
        *("schedo.config", "schedo.serve", "schedo.app", "schedo.engine.engine"),
    }


def test_the_package_can_be_run_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "schedo", "--version"], capture_output=True, timeout=30
    )

    assert (ended.returncode, ended.stdout[:7]) == (0, b"schedo,")


def run_in_latin(*args: str, url: str) -> subprocess.CompletedProcess[bytes]:
    """Run schedo as on a terminal whose encoding is ISO-8859-1."""
    return subprocess.run(
        [sys.executable, "-m", "schedo", *args, "--url", url],
        env=dict(os.environ, PYTHONIOENCODING="latin-1"),
        capture_output=True,
    )


def test_a_character_that_the_encoding_lacks_is_escaped(server: FakeServer) -> None:
    server.on("GET", "/v1/jobs/a/why", 200, {"why": "the server is paused: Grüße ☃"})

    ended = run_in_latin("jobs", "why", "a", url=server.url)

    assert ended.stderr == b""
    assert ended.stdout.decode("latin-1").startswith("the server is paused: Grüße \\u2603")


def test_an_export_is_utf_8_whatever_the_encoding_is(server: FakeServer) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(payload="Grüße ☃")]})
    for empty in ("/v1/expectations", "/v1/queues"):
        server.on("GET", empty, 200, {"items": []})

    ended = run_in_latin("export", url=server.url)

    assert ended.stderr == b""
    assert 'payload = "Grüße ☃"' in ended.stdout.decode()


def test_an_output_without_a_reader_ends_a_command_as_sigpipe_does(server: FakeServer) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": []})
    server.on("GET", "/v1/queues", 404, problem(404, "not-found", "there is no such address"))
    for args in (["jobs", "ls"], ["--help"], ["cron", "--help"], ["queues", "ls"]):
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run(
            [sys.executable, "-m", "schedo", *args],
            env=dict(os.environ, SCHEDO_URL=server.url),
            stdout=writer,
            stderr=writer if args[0] == "queues" else subprocess.PIPE,
            timeout=30,
        )
        os.close(writer)

        assert (args, ended.returncode) == (args, -signal.SIGPIPE)
        assert not ended.stderr


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_command_as_sigint_does(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.toml").write_text("[queues.mail]\nconcurrency = 4\n")
    (tmp_path / "crontab").write_text("* * * * * root true\n")
    commands = (
        ["apply", "jobs.toml"],
        ["crontab", "import", "crontab", "--system"],
        ["export", "all.toml"],
        ["backup", "copy.db"],
        ["jobs", "ls"],
    )
    for args in commands:
        ended = interrupt_command(server, tmp_path, args, monkeypatch)

        assert (args, ended.returncode, ended.stderr) == (args, -signal.SIGINT, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["crontab", "jobs.toml"]


def interrupt_command(
    server: FakeServer, where: Path, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> subprocess.CompletedProcess[str]:
    """Run the command, and send it SIGINT when the server has received its first request."""

    def next_reply(method: str, target: str) -> Reply:
        running.send_signal(signal.SIGINT)
        running.wait(30)
        return Reply(200)

    monkeypatch.setattr(server, "next_reply", next_reply)
    running = subprocess.Popen(
        [sys.executable, "-m", "schedo", *args],
        env=dict(os.environ, SCHEDO_URL=server.url),
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stdout, stderr = running.communicate(timeout=30)
    return subprocess.CompletedProcess(args, running.returncode, stdout, stderr)
