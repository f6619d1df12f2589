"""How errors are worded: one sentence on stderr, in which nothing can touch the terminal."""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.escapes import escape
from schedo.errors import Exit, Invalid, SchedoError


class Failure(click.ClickException):
    """The server said no, or cannot be reached."""

    exit_code = Exit.REFUSED

    def show(self, file: Any = None) -> None:
        """Print the error."""
        click.echo(f"schedo: {escape(self.message)}", file=file, err=True)


class BadConfiguration(Failure):
    """The server cannot be started like this."""

    exit_code = Exit.MISUSED


def explain(error: SchedoError) -> str:
    """Return the error as one sentence, with what helps to act on it."""
    text = str(error)
    if isinstance(error, Invalid):
        places = (f"{problem.pointer}: {problem.detail}" for problem in error.problems)
        text = "; ".join([text, *(place for place in places if place not in text)])
    if error.code == "unreachable" and text.startswith("cannot reach"):
        text += "; is `schedo serve` running?"
    if error.code == "unauthorized":
        text += "; give the token with --token-file or SCHEDO_TOKEN"
    if error.status >= 500:
        text = "; ".join([text, *getattr(error, "__notes__", [])])
    return text
