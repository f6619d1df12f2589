"""Makes the client of a command from the URL and the token file that the user gave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from schedo.client.tokens import read_token
from schedo.errors import Invalid

C = TypeVar("C")


def make_client(kind: Callable[[str, str | None], C], url: str, token_file: str | None) -> C:
    """Return a client; raise UsageError if the URL or the token is not valid."""
    try:
        token = read_token(token_file) if token_file else os.environ.get("SCHEDO_TOKEN") or None
        return kind(url, token)
    except Invalid as error:
        raise click.UsageError(str(error)) from error
