"""What one import of crontabs reads: files, stdin, directories; and the format of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedo.cli.crontab import parse_crontab
from schedo.cli.crontab_format import is_system_crontab
from tests.cli.conftest import Call
from tests.cli.test_crontab_import import list_as_stored, stored, write
from tests.client.server import FakeServer, schedule_record


def test_crontabs_of_two_hosts_from_stdin_are_kept_apart(server: FakeServer, schedo: Call) -> None:
    entry = parse_crontab("0 3 * * * backup\n", system=False, source="b").entries[0].name
    list_as_stored(server, schedule_record(name="a.backup-1", owner="crontab:a"))
    server.on("PUT", f"/v1/schedules/{entry}", 201, schedule_record(name=entry))

    result = schedo("crontab", "import", "-", "--name", "b", "--prune", input="0 3 * * * backup\n")

    assert result.exit_code == 0
    assert [request.method for request in server.requests] == ["PUT", "GET"]
    assert server.requests[0].target.endswith("?owner=crontab%3Ab")
    assert "a.backup" not in result.stdout


def test_the_crontabs_of_a_directory_are_imported_together(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "cron.d"
    folder.mkdir()
    write(folder, "5 * * * * root collect\n", "stats")
    write(folder, "61 * * * * root tidy\n", "php")
    write(folder, "0 0 * * * root old\n", "php.dpkg-old")
    write(folder, "", ".placeholder")
    (folder / "sub").mkdir()

    result = schedo("crontab", "import", str(folder), "--dry-run")

    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith(f"{folder}/php:1: refused: ")
    assert lines[1].startswith(f"{folder}/php.dpkg-old: note: cron ignores it, because its name")
    assert lines[2].startswith(f"{folder}/stats:1: stats.collect-")
    assert lines[3:] == [
        f"{folder}/sub: note: it is no file",
        "1 would be imported, 1 refused; times are in UTC",
    ]


def test_the_only_file_of_a_directory_is_named_if_it_is_ignored(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    ignored = write(tmp_path, "0 0 * * * root old\n", "php.dpkg-old")

    result = schedo("crontab", "import", str(tmp_path), "--dry-run")

    assert result.stdout.startswith(f"{ignored}: note: cron ignores it, because its name")


def test_a_file_that_is_gone_from_a_directory_is_noticed(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "cron.d"
    folder.mkdir()
    write(folder, "5 * * * * root collect\n", "stats")
    entry = parse_crontab("5 * * * * root collect\n", system=True, source="stats").entries[0].name
    list_as_stored(server, stored(entry, str(folder)), stored("gone.tidy-1", str(folder)))
    server.on("PUT", f"/v1/schedules/{entry}", 200, schedule_record(name=entry))
    server.on("DELETE", "/v1/schedules/gone.tidy-1", 204)

    result = schedo("crontab", "import", str(folder), "--prune")

    assert "no longer in the file: gone.tidy-1 deleted" in result.stdout
    assert [r.method for r in server.requests] == ["PUT", "GET", "DELETE"]


def test_equal_lines_of_two_files_whose_names_begin_alike_are_refused(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    for end in "ab":
        write(tmp_path, "5 * * * * collect\n", f"a-name-of-20-letters-{end}")

    result = schedo("crontab", "import", str(tmp_path), "--dry-run")

    assert result.exit_code == 1
    assert "-b:1: refused: another file of this import has an entry of the name" in result.stdout


def test_each_script_of_a_directory_becomes_a_schedule_at_debians_time(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "100% cron" / "cron.daily"
    folder.mkdir(parents=True)
    for name, mode in (("logrotate", 0o755), ("README", 0o644), ("old.bak", 0o755)):
        Path(write(folder, "#!/bin/sh\n", name)).chmod(mode)

    result = schedo("crontab", "import", str(folder), "--dry-run", "--json")

    answer = json.loads(result.stdout)
    (made,) = answer["schedules"]
    assert (made["cron"], made["user"]) == ("25 6 * * *", "root")
    assert made["command"] == f"'{folder}/logrotate'"
    assert made["name"].startswith("cron.daily.")
    reasons = {Path(item["text"]).name: item["reason"] for item in answer["notices"][:2]}
    assert "not executable" in reasons["README"]
    assert "cron ignores it" in reasons["old.bak"]


def test_a_line_that_runs_a_directory_of_scripts_is_noticed(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "17 * * * * cd / && run-parts --report /etc/cron.hourly\n"

    result = schedo("crontab", "import", write(tmp_path, text), "--dry-run")

    assert "schedo crontab import /etc/cron.hourly makes a schedule of each" in result.stdout


@pytest.mark.parametrize(
    ("text", "is_system"),
    [
        ("0 3 * * * root backup", True),
        ("0 3 * * * root backup\n@daily nobody x", True),
        ("0 3 * * * root backup\n0 4 * * * root\n", True),
        ("0 3 * * * root backup\n61 4 * * * root x\n", True),
        ("0 3 * * * root backup\n0 4 *\nA='b\n", True),
        ("0 3 * * * root backup\n0 4 * * * sync now\n", True),
        ("0 3 * * * save now\n0 4 * * * report", False),
        ("0 3 * * * sync\n0 5 * * * report", False),
        ("0 3 * * * root", False),
        ("0 3 * * * root\n0 4 * * * report now", False),
        ("0 3 * * * \udcff x\n0 4 * * * report", False),
        ("0 3 * * * /usr/bin/true", False),
        ("# nothing", False),
    ],
)
def test_a_file_is_a_system_crontab_if_its_lines_name_users(text: str, is_system: bool) -> None:
    assert is_system_crontab("mycron", text) is is_system


@pytest.mark.parametrize("path", ["/etc/crontab", "/etc/cron.d/php", "copies/cron.d/php"])
def test_a_file_in_etc_is_a_system_crontab(path: str) -> None:
    assert is_system_crontab(path, "0 3 * * * nosuchuser x") is True


def test_an_inconsistent_format_is_an_error_that_names_the_lines(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "A=1\n0 3 * * * root save\n0 4 * * * nosuchuser x\n0 5 * * * nobody y\n"

    result = schedo("crontab", "import", write(tmp_path, text))

    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("\u2502", " ").split())
    assert (
        "line 2, 4: a user (nobody, root) seems to precede the command, but line 3 names no" in said
    )
    assert server.requests == []


def test_an_ambiguous_format_is_an_error(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    result = schedo("crontab", "import", write(tmp_path, "0 3 * * * nobody now\n"))

    assert result.exit_code == 2
    assert "(nobody)" in result.stderr
    assert "--user-format" in result.stderr
    assert server.requests == []


@pytest.mark.parametrize(
    ("command", "readable"),
    [
        ("test -x /usr/sbin/anacron || { cd / && run-parts /etc/cron.daily; }", "test-cron.daily"),
        ("cd / && run-parts --report /etc/cron.hourly", "cd-cron.hourly"),
        ("/usr/local/bin/backup --all >> /var/log/backup 2>&1", "backup-all"),
        ("pg_dump -Fc shop > /backups/shop.dump", "pg_dump-Fc-shop"),
        ("[ -x /usr/lib/php/clean ] && /usr/lib/php/clean --older-than 9", "clean-9"),
        ("x" * 30, "x" * 19),
        ("|| :", "crontab"),
    ],
)
def test_a_schedule_is_named_after_the_words_that_tell_its_command(
    command: str, readable: str
) -> None:
    (entry,) = parse_crontab(f"0 3 * * * {command}\n", system=False, source="web1").entries

    assert entry.name.rpartition("-")[0] == f"web1.{readable}"
