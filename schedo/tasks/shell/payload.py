"""The payload of shell jobs, checked so that it cannot change how programs are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from schedo.core import limits
from schedo.errors import Problem
from schedo.tasks.payloads import Seconds, decode_payload, find_duration_problem, refuse_all

_GRACE_US_MAX = limits.HOUR
_WORD_BYTES_MAX = 131_071  # Linux's limit of an argument or a variable (MAX_ARG_STRLEN)

# Variables that change which code a program loads at its start, and variables that schedo sets.
# The facts of an event are in the payload of an event job: see core/event_jobs.py.
# PATH is allowed: crontabs set it, and a command can set it, too.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = re.compile(
    r"(SCHEDO_(?!FAILED_|EXPECTATION_).*|TRACEPARENT|TRACESTATE|LD_.*|DYLD_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH"
    r"|BASH_ENV|BASH_FUNC_.*|ENV|IFS|SHELLOPTS|BASHOPTS|PS4"
    r"|PYTHONPATH|PYTHONHOME|PYTHONSTARTUP|PERL5LIB|PERL5OPT|RUBYLIB|RUBYOPT|NODE_OPTIONS)\Z"
)


class ShellPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a shell job."""

    command: str | list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    grace: Seconds = "5s"
    shell: str = "/bin/sh"
    success_codes: tuple[int, ...] = (0,)


def check_shell_payload(payload: bytes) -> ShellPayload:
    """Decode the payload of a shell job, or raise Invalid that points at every bad field."""
    decoded = decode_payload(payload, ShellPayload)
    refuse_all(_check_command(decoded), _check_env(decoded.env), _check_rest(decoded))
    return decoded


def _check_command(payload: ShellPayload) -> Iterator[Problem]:
    words = [payload.command] if isinstance(payload.command, str) else payload.command
    is_list = not isinstance(payload.command, str)
    if not words or not words[0].strip():
        yield Problem("/command", "it must not be empty")
    for number, word in enumerate(words):
        problem = _find_word_problem(word)
        if problem:
            yield Problem(f"/command/{number}" if is_list else "/command", problem)


def _check_env(env: dict[str, str]) -> Iterator[Problem]:
    for name, value in env.items():
        pointer = "/env/" + name.replace("~", "~0").replace("/", "~1")
        if not _VARIABLE.match(name):
            yield Problem(pointer, "a variable name may have only letters, digits and _")
        elif _RESERVED.match(name):
            yield Problem(
                pointer, "a job may not set this variable: schedo or the program loader uses it"
            )
        elif problem := _find_word_problem(value):
            yield Problem(pointer, problem)


def _check_rest(payload: ShellPayload) -> Iterator[Problem]:
    for field, path in (("/cwd", payload.cwd), ("/shell", payload.shell)):
        if path is not None and (not path.startswith("/") or _find_word_problem(path)):
            yield Problem(field, "it must be an absolute path")
    if problem := find_duration_problem(payload.grace, 0, _GRACE_US_MAX):
        yield Problem("/grace", problem)
    if not payload.success_codes:
        yield Problem("/success_codes", "give at least one exit code")
    for number, code in enumerate(payload.success_codes):
        if not 0 <= code <= 255:
            yield Problem(f"/success_codes/{number}", "an exit code must be 0 to 255")


def _find_word_problem(word: str) -> str | None:
    if "\0" in word:
        return "it contains a NUL character"
    if len(word.encode("utf-8", "surrogatepass")) > _WORD_BYTES_MAX:
        return f"it is longer than {_WORD_BYTES_MAX} bytes; pass long data in stdin"
    return None
