"""The parser of crontab files: real files of Debian machines, and edge cases of the format."""

from __future__ import annotations

import re

import pytest

from schedo.cli.crontab import (
    CrontabEntry,
    CrontabFile,
    CrontabProblem,
    is_anacrontab,
    parse_crontab,
    slug_source,
)

PATH = "/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin"

ETC_CRONTAB = """\
# /etc/crontab: system-wide crontab
# Unlike any other crontab you don't have to run the `crontab'
# command to install the new version when you edit this file
# and files in /etc/cron.d. These files also have username fields,
# that none of the other crontabs do.

SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# Example of job definition:
# .---------------- minute (0 - 59)
# |  .------------- hour (0 - 23)
# |  |  .---------- day of month (1 - 31)
# |  |  |  .------- month (1 - 12) OR jan,feb,mar,apr ...
# |  |  |  |  .---- day of week (0 - 6) (Sunday=0 or 7) OR sun,mon,tue,wed,thu,fri,sat
# |  |  |  |  |
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6\t1 * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
#
"""

# Lines of /etc/cron.d: file name, line, expression, command.
CRON_D = [
    (
        "anacron",
        "30 7-23 * * *   root\t[ -x /etc/init.d/anacron ] && if [ ! -d /run/systemd/system ];"
        " then /usr/sbin/invoke-rc.d anacron start >/dev/null; fi",
        "30 7-23 * * *",
        "[ -x /etc/init.d/anacron ] && if [ ! -d /run/systemd/system ];"
        " then /usr/sbin/invoke-rc.d anacron start >/dev/null; fi",
    ),
    (
        "certbot",
        "0 */12 * * * root test -x /usr/bin/certbot -a \\! -d /run/systemd/system"
        " && perl -e 'sleep int(rand(43200))' && certbot -q renew --no-random-sleep-on-renew",
        "0 */12 * * *",
        "test -x /usr/bin/certbot -a \\! -d /run/systemd/system"
        " && perl -e 'sleep int(rand(43200))' && certbot -q renew --no-random-sleep-on-renew",
    ),
    (
        "e2scrub_all",
        "30 3 * * 0 root test -e /run/systemd/system ||"
        " SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron",
        "30 3 * * 0",
        "test -e /run/systemd/system ||"
        " SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron",
    ),
    (
        "mdadm",
        "57 0 * * 0 root if [ -x /usr/share/mdadm/checkarray ] && [ $(date +\\%d) -le 7 ];"
        " then /usr/share/mdadm/checkarray --cron --all --idle --quiet; fi",
        "57 0 * * 0",
        "if [ -x /usr/share/mdadm/checkarray ] && [ $(date +%d) -le 7 ];"
        " then /usr/share/mdadm/checkarray --cron --all --idle --quiet; fi",
    ),
    (
        "php",
        "09,39 *     * * *     root   [ -x /usr/lib/php/sessionclean ] &&"
        " if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi",
        "9,39 * * * *",
        "[ -x /usr/lib/php/sessionclean ] &&"
        " if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi",
    ),
    (
        "sysstat",
        "5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1",
        "5-55/10 * * * *",
        "command -v debian-sa1 > /dev/null && debian-sa1 1 1",
    ),
]


def read(text: str, source: str = "mine") -> CrontabFile:
    return parse_crontab(text, system=False, source=slug_source(source))


def only_entry(text: str) -> CrontabEntry:
    file = read(text)
    assert [p for p in file.problems if not p.is_notice] == []
    (entry,) = file.entries
    return entry


def only_problem(text: str, *, system: bool = False) -> CrontabProblem:
    (problem,) = parse_crontab(text, system=system, source="mine", current_user="root").problems
    return problem


def test_every_line_of_debians_crontab_is_imported() -> None:
    file = parse_crontab(ETC_CRONTAB, system=True, source="crontab", current_user="root")

    assert [problem.line_number for problem in file.problems] == [18, 19, 20, 21]
    assert [(e.line_number, e.cron, e.user, e.command) for e in file.entries] == [
        (18, "17 * * * *", "root", "cd / && run-parts --report /etc/cron.hourly"),
        (
            19,
            "25 6 * * *",
            "root",
            "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }",
        ),
        (
            20,
            "47 6 * * 7",
            "root",
            "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }",
        ),
        (
            21,
            "52 6 1 * *",
            "root",
            "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }",
        ),
    ]
    for entry in file.entries:
        assert entry.environment == {"SHELL": "/bin/sh", "PATH": PATH}
        assert entry.shell == "/bin/sh"
        assert entry.tz is None
        assert entry.stdin is None


@pytest.mark.parametrize(("source", "line", "cron", "command"), CRON_D, ids=[c[0] for c in CRON_D])
def test_lines_of_packages_in_cron_d_are_imported(
    source: str, line: str, cron: str, command: str
) -> None:
    text = f"SHELL=/bin/sh\n\n{line}\n"

    file = parse_crontab(text, system=True, source=source, current_user="root")

    assert file.problems == []
    (entry,) = file.entries
    assert (entry.cron, entry.command, entry.user) == (cron, command, "root")
    assert entry.name.startswith(f"{source}.")


def test_an_entry_for_another_user_is_returned_with_a_notice() -> None:
    line = "0 3 * * * www-data /usr/bin/tidy"

    file = parse_crontab(line, system=True, source="tidy", current_user="root")

    assert file.entries[0].user == "www-data"
    reason = "cron runs it as www-data; schedo runs it as the server's own user"
    assert file.problems == [CrontabProblem(1, line, reason, is_notice=True)]


def test_entries_of_a_users_own_crontab_name_no_user() -> None:
    file = parse_crontab("0 3 * * * tidy", system=False, source="x", current_user="me")

    assert file.problems == []
    assert file.entries[0].user is None


@pytest.mark.parametrize(
    ("line", "cron"),
    [
        ("@hourly run", "0 * * * *"),
        ("@daily\trun", "0 0 * * *"),
        ("@WEEKLY run", "0 0 * * 0"),
        ("  */5 * * * mon-fri   run", "*/5 * * * MON-FRI"),
        ("0 0 1 1 sun run", "0 0 1 1 SUN"),
    ],
)
def test_times_are_normalized_cron_expressions(line: str, cron: str) -> None:
    entry = only_entry(line)

    assert entry.cron == cron
    assert entry.command == "run"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("A = b c ", "A", "b c"),
        ("A='b c '", "A", "b c "),
        ('A="b=c"  ', "A", "b=c"),
        ('"A B"=c', "A B", "c"),
        ("A=", "A", ""),
        ("A=''", "A", ""),
        ("A=b # c", "A", "b # c"),
        ("A=$HOME/b", "A", "$HOME/b"),
        ("HOME=/srv", "HOME", "/srv"),
    ],
)
def test_a_setting_applies_to_the_commands_below_it(line: str, name: str, value: str) -> None:
    assert only_entry(f"{line}\n0 0 * * * run\n").environment == {name: value}


def test_a_setting_does_not_apply_to_lines_above_it() -> None:
    file = read("0 0 * * * one\nA=1\n0 0 * * * two\nA=2\nSHELL=/bin/bash\n0 0 * * * three\n")

    assert [entry.environment for entry in file.entries] == [
        {},
        {"A": "1"},
        {"A": "2", "SHELL": "/bin/bash"},
    ]
    assert [entry.shell for entry in file.entries] == ["/bin/sh", "/bin/sh", "/bin/bash"]


def test_a_setting_in_a_command_is_part_of_the_command() -> None:
    entry = only_entry("0 0 * * * A=1 run")

    assert entry.command == "A=1 run"
    assert entry.environment == {}


@pytest.mark.parametrize(
    ("rest", "command", "stdin"),
    [
        ("date +\\%F", "date +%F", None),
        ("mail joe%Hi Joe%%Bye", "mail joe", "Hi Joe\n\nBye\n"),
        ("cat%100\\% sure%", "cat", "100% sure\n"),
        ("cat%", "cat", None),
        ("cat %%", "cat", "\n"),
        ("echo a\\\\b \\! \\%", "echo a\\b \\! %", None),
        ("cat%a\\\\b\\n", "cat", "a\\\\b\\n\n"),
        ("echo \\", "echo \\", None),
        ("echo # not a comment", "echo # not a comment", None),
    ],
)
def test_percent_signs_are_read_as_by_debians_cron(
    rest: str, command: str, stdin: str | None
) -> None:
    entry = only_entry(f"0 0 * * * {rest}")

    assert (entry.command, entry.stdin) == (command, stdin)


def test_cron_tz_sets_the_zone_of_the_lines_below() -> None:
    file = read("0 1 * * * a\nCRON_TZ=Asia/Tokyo\n0 2 * * * b\nCRON_TZ=\n0 3 * * * c\n")

    assert file.problems == []
    assert [entry.tz for entry in file.entries] == [None, "Asia/Tokyo", None]
    assert file.entries[1].environment == {}


def test_entries_under_an_unknown_zone_are_not_imported() -> None:
    file = read("CRON_TZ=Mars/Base\n0 2 * * * b\nCRON_TZ=UTC\n0 3 * * * c\n")

    assert [entry.command for entry in file.entries] == ["c"]
    assert [(problem.line_number, problem.is_notice) for problem in file.problems] == [
        (1, False),
        (2, False),
    ]
    assert "'Mars/Base' is not known" in file.problems[0].reason
    assert file.problems[1].reason == "the CRON_TZ of line 1 is not a known time zone"


def test_tz_is_only_a_variable_of_the_commands() -> None:
    file = read("TZ=Asia/Tokyo\n0 2 * * * b\n")

    assert file.entries[0].tz is None
    assert file.entries[0].environment == {"TZ": "Asia/Tokyo"}
    assert [problem.is_notice for problem in file.problems] == [True]


def test_mail_settings_give_a_notice() -> None:
    file = read("MAILTO=root\nMAILFROM=cron\n0 0 * * * run\n")

    assert [problem.reason for problem in file.problems] == [
        "MAILTO has no effect: schedo sends no mail",
        "MAILFROM has no effect: schedo sends no mail",
    ]
    assert all(problem.is_notice for problem in file.problems)
    assert file.entries[0].environment == {}


def test_an_empty_mailto_gives_no_notice() -> None:
    assert read('MAILTO=""\n0 0 * * * run\n').problems == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@reboot run", "@reboot is not a time"),
        ("@every 5m run", "a crontab has no @every; use: schedo schedules put"),
        ("@fortnightly run", "'@fortnightly' is not known"),
        ("0 0 * * *", "the line has no command"),
        ("@daily", "the line has no command"),
        ("0 0 * * * %input", "the line has no command"),
        ("0 0 *", "the line is neither NAME=value nor five time fields and a command"),
        ("hello", "the line is neither NAME=value nor five time fields and a command"),
        ("61 0 * * * run", "minute '61': 61 is not between 0 and 59"),
        ("0 0 30 2 * run", "never fires"),
        ("0~30 * * * * run", "random ranges are not supported"),
        ("A='b", "the closing quote of the value is missing"),
        ('A="b" c', "the closing quote of the value is missing, or text follows it"),
        ("0 0 * * * run \0", "the line contains a NUL character"),
        ("0 0 * * * run\r0 1 * * * run", "the line contains a carriage return"),
        ("@daily 5 tidy run", "this is a line of an anacrontab"),
        ("7 10 cron.weekly run-parts /etc/cron.weekly", "this is a line of an anacrontab"),
    ],
)
def test_a_line_that_cannot_be_imported_is_reported_with_the_reason(line: str, said: str) -> None:
    text = f"# first\n{line}\n0 0 * * * fine\n"

    file = read(text)

    (problem,) = file.problems
    assert (problem.line_number, problem.text, problem.is_notice) == (2, line, False)
    assert said in problem.reason
    assert [entry.command for entry in file.entries] == ["fine"]


def test_a_users_crontab_read_as_a_system_crontab_is_refused() -> None:
    problem = only_problem("0 0 * * * /usr/bin/run --now", system=True)

    assert "'/usr/bin/run' is not a user name" in problem.reason
    assert "the line has no command" in only_problem("0 0 * * * root", system=True).reason
    assert "'' is not a user name" in only_problem("0 0 * * *", system=True).reason


def test_windows_line_ends_and_a_byte_order_mark_are_ignored() -> None:
    assert only_entry("\ufeffA=1\r\n0 0 * * * run\r\n") == CrontabEntry(
        2, "0 0 * * *", None, "run", None, {"A": "1"}, None, only_entry("0 0 * * * run").name
    )


def test_a_crontab_without_entries_is_read_without_problems() -> None:
    assert read("") == CrontabFile([], [])
    assert read("\n  # only this\n\n") == CrontabFile([], [])


def test_names_are_stable_when_lines_move_and_times_change() -> None:
    before = read("0 0 * * * backup --all\n0 1 * * * tidy\n")
    after = read("# new\nA=1\n30 4 * * 1 tidy\n0 0 * * * backup --all\n")

    names = {entry.command: entry.name for entry in before.entries}
    assert {entry.command: entry.name for entry in after.entries} == names
    assert re.fullmatch(r"mine\.backup-all-[0-9a-f]{8}", names["backup --all"])


def test_names_are_unique_in_a_file() -> None:
    file = read("0 0 * * * run\n0 1 * * * run\n0 2 * * * run\n0 3 * * * run%in\n")

    names = [entry.name for entry in file.entries]
    assert names[1] == f"{names[0]}-2"
    assert names[2] == f"{names[0]}-3"
    assert len(set(names)) == 4


@pytest.mark.parametrize("source", ["/etc/cron.d/a b", "-", "", "ü" * 200, "x" * 200, "/var/tabs/"])
@pytest.mark.parametrize("command", ["run", "/usr/bin/" + "x" * 500, "::", "ü", "a" * 60 + "--"])
def test_names_are_valid_names_of_schedules(source: str, command: str) -> None:
    (entry,) = read(f"0 0 * * * {command}", source).entries

    assert re.fullmatch(r"[A-Za-z0-9._-]{1,40}-[0-9a-f]{8}", entry.name)


DEBIANS_ANACRONTAB = """\
# /etc/anacrontab: configuration file for anacron
SHELL=/bin/sh
HOME=/root
LOGNAME=root

# These replace cron's entries
1\t5\tcron.daily\trun-parts --report /etc/cron.daily
7\t10\tcron.weekly\trun-parts --report /etc/cron.weekly
@monthly\t15\tcron.monthly\trun-parts --report /etc/cron.monthly
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEBIANS_ANACRONTAB, True),
        ("@monthly 15 cron.monthly run-parts /etc/cron.monthly", True),
        ("@monthly 15 tidy run\n0 3 * * * run", False),
        ("1 5 L * * run", False),
        ("1 5 1-7,15 * * run", False),
        ("@monthly root run-parts /etc/cron.monthly", False),
        ("A=1\n# nothing", False),
        (ETC_CRONTAB, False),
    ],
)
def test_an_anacrontab_is_recognized(text: str, expected: bool) -> None:
    assert is_anacrontab(text) is expected
