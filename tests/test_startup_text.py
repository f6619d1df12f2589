"""What a server prints when it is ready."""

from __future__ import annotations

import json

import pytest

from schedo.config import Config, Secret
from schedo.startup_text import print_address


def printed(capsys: pytest.CaptureFixture[str], config: Config, *, is_new: bool = False) -> str:
    print_address(config, 8080, is_new_store=is_new)
    return capsys.readouterr().out


def test_the_first_line_has_the_address_and_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, Config(store="./data/schedo.db"))

    assert "listens on http://127.0.0.1:8080; its jobs are in ./data/schedo.db\n" in text


def test_a_new_store_is_called_new(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, Config(store="typo/x.db"), is_new=True)

    assert "its jobs are in typo/x.db, which is new and empty\n" in text


@pytest.mark.parametrize(
    ("allow_shell", "task"), [(True, "shell"), (False, "http")], ids=["shell", "no shell"]
)
def test_the_command_to_paste_submits_a_job_that_the_server_runs(
    capsys: pytest.CaptureFixture[str], allow_shell: bool, task: str
) -> None:
    text = printed(capsys, Config(allow_shell=allow_shell))

    assert f'"task":"{task}"' in text.splitlines()[-1]
    assert ("--allow-shell turns them on" in text) is not allow_shell


def test_the_command_to_paste_reads_the_token_from_its_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, Config(token=Secret("t" * 40), token_file="/run/token"))

    assert '"authorization: Bearer $(cat /run/token)"' in text


def test_with_the_log_format_json_it_is_one_record(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, Config(log_format="json")).splitlines()

    record = json.loads(line)
    assert (record["level"], record["logger"]) == ("info", "schedo")
    assert "listens on http://127.0.0.1:8080" in record["message"]
