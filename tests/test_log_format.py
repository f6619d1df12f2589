"""A log message is always one line, whatever text it contains."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from schedo.log_format import JsonFormatter, TextFormatter


def record(message: str, *values: object, is_error: bool = False) -> logging.LogRecord:
    try:
        raise ValueError("a\nb")
    except ValueError:
        info = sys.exc_info() if is_error else None
    found = logging.LogRecord("shop", logging.WARNING, "shop.py", 1, message, values, info)
    found.created, found.msecs = 1_795_172_645.25, 250.0  # 2026-11-20T11:04:05.250Z
    return found


def test_a_text_line_has_instant_level_logger_and_message() -> None:
    line = TextFormatter().format(record("order %d is late", 7))

    assert line == "2026-11-20T11:04:05.250Z warning shop: order 7 is late"


def test_a_line_names_the_job_of_the_handler_that_logged_it() -> None:
    found = record("late")
    found.schedo_job, found.schedo_task = "0000000000011", "send"
    outside = record("late")
    outside.schedo_job = outside.schedo_task = "-"

    text = "warning shop: job 0000000000011 of task send: late"
    assert TextFormatter().format(found) == f"2026-11-20T11:04:05.250Z {text}"
    line = json.loads(JsonFormatter().format(found))
    assert (line["job"], line["task"]) == ("0000000000011", "send")
    assert TextFormatter().format(outside).endswith("shop: late")
    assert "job" not in json.loads(JsonFormatter().format(outside))


def test_a_message_with_line_breaks_stays_one_line() -> None:
    line = TextFormatter().format(record("%s", "a\nforged\x1b[2J\u2028", is_error=True))

    assert line.startswith(
        "2026-11-20T11:04:05.250Z warning shop: a\\nforged\\x1b[2J\\u2028 | Trace"
    )
    assert len(line.splitlines()) == 1
    assert line.endswith("ValueError: a\\nb")


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u2066", "\u200b", "\ufeff", "\x9b", "\x7f"], ids=ascii
)
def test_no_character_hides_text_or_turns_its_direction(hidden: str) -> None:
    message = f"task {hidden}gnp.exe is unknown"

    line = TextFormatter().format(record("%s", message))
    data = JsonFormatter().format(record("%s", message))

    assert line.endswith(f"task {ascii(hidden)[1:-1]}gnp.exe is unknown")
    assert hidden not in data
    assert json.loads(data)["message"] == message


def test_letters_of_all_scripts_and_joined_symbols_are_logged_as_they_are() -> None:
    message = "häßlich שלום 漢字 👩\u200d🚀 نمی\u200cشود"

    assert TextFormatter().format(record("%s", message)).endswith(message)
    assert message in JsonFormatter().format(record("%s", message))


def test_a_json_line_is_one_object() -> None:
    line = JsonFormatter().format(record("a\n%s", "b", is_error=True))

    fields = json.loads(line)
    assert len(line.splitlines()) == 1
    assert fields.pop("traceback").endswith("ValueError: a\nb")
    assert fields == {
        "at": "2026-11-20T11:04:05.250Z",
        "level": "warning",
        "logger": "shop",
        "message": "a\nb",
    }


def test_a_json_line_replaces_lone_surrogates() -> None:
    assert json.loads(JsonFormatter().format(record("%s", "a\ud800")))["message"] == "a?"
