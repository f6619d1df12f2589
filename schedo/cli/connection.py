"""How a command finds the server: --url and --token-file, or their variables."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from schedo.client.sync import Client
from schedo.client.tokens import read_token
from schedo.errors import Invalid

DEFAULT_URL = "http://127.0.0.1:8080"


def connected(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the server is, and give the command a client for it."""

    @click.option(
        "--url", envvar="SCHEDO_URL", default=DEFAULT_URL, show_default=True, help="The server."
    )
    @click.option(
        "--token-file",
        envvar="SCHEDO_TOKEN_FILE",
        metavar="FILE",
        help="The file with the server's token; or set SCHEDO_TOKEN.",
    )
    @functools.wraps(function)
    def command(*args: Any, url: str, token_file: str | None, **options: Any) -> None:
        with open_client(url, token_file) as client:
            function(client, *args, **options)

    return command


def open_client(url: str, token_file: str | None) -> Client:
    """Return a client; wrong usage, not a failure, if the URL or the token cannot be right."""
    try:
        token = read_token(token_file) if token_file else os.environ.get("SCHEDO_TOKEN") or None
        return Client(url, token)
    except Invalid as error:
        raise click.UsageError(str(error)) from error


as_json = click.option("--json", "is_json", is_flag=True, help="Print JSON.")
