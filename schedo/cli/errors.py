"""Errors of commands: one sentence on stderr, without terminal control characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from schedo.cli.escapes import escape
from schedo.errors import Exit, Invalid, SchedoError, exit_of_server

if TYPE_CHECKING:
    from schedo.client.messages import Record


# What a client says of a server that has answered, although it could not be asked.
_ANSWERED = ("its certificate", "there is no TLS at this port")


class Failure(click.ClickException):
    """The server rejected the request, or cannot be reached."""

    exit_code = Exit.REFUSED

    def show(self, file: Any = None) -> None:
        """Print the error."""
        click.echo(f"schedo: {escape(self.message)}", file=file, err=True)


class BadConfiguration(Failure):
    """The configuration is wrong, so the process cannot start."""

    exit_code = Exit.MISUSED


class FileFailure(Failure):
    """A command that works on files failed; its exit code is the one that a server would have."""

    def __init__(self, error: SchedoError) -> None:
        super().__init__(explain(error))
        self.exit_code = exit_of_server(error)  # type: ignore[misc]  # click has one for a class


@contextmanager
def on_files() -> Iterator[None]:
    """Turn a SchedoError of the block into a FileFailure."""
    try:
        yield
    except SchedoError as error:
        raise FileFailure(error) from error


def explain(error: SchedoError, options: Mapping[str, str] | None = None) -> str:
    """Return the error as one sentence, with a hint for the user if one is known.

    `options` has the command's option for the JSON Pointer of a field, to name it instead.
    """
    text = str(error)
    if isinstance(error, Invalid):
        places = (f"{problem.pointer}: {problem.detail}" for problem in error.problems)
        # The pointer of a parameter of the query begins with a question mark, its name does not.
        text = "; ".join([text, *(each for each in places if each.removeprefix("?") not in text)])
        for problem in error.problems:
            option = (options or {}).get(problem.pointer, problem.pointer)
            text = text.replace(f"{problem.pointer}: ", f"{option}: ")
    is_silent = not any(said in text for said in _ANSWERED)
    if error.code == "unreachable" and text.startswith("cannot reach") and is_silent:
        text += "; is `schedo serve` running? Give another address with --url or SCHEDO_URL"
    if error.code == "unauthorized" and "wrong" not in text:
        text = f"{text.partition(';')[0]}; give the token with --token-file or SCHEDO_TOKEN"
    if error.status >= 500:
        text = "; ".join([text, *getattr(error, "__notes__", [])])
    return text


def describe_problem(error: SchedoError | click.ClickException) -> Record:
    """Return the error as a problem document, such as the API renders."""
    if isinstance(error, click.ClickException):
        code = "usage" if isinstance(error, click.UsageError) else "failure"
        return {"code": code, "detail": error.format_message()}
    problem: Record = {"code": error.code, "status": error.status, "detail": explain(error)}
    if isinstance(error, Invalid):
        problem["errors"] = [
            {"pointer": each.pointer, "detail": each.detail} for each in error.problems
        ]
    return problem
