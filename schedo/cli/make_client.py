"""Makes the client of a command from the URL and the token file that the user gave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from schedo.client.tokens import read_token
from schedo.errors import Invalid

C = TypeVar("C")

_CA_CERT = "schedo.ca_cert"


def _remember(ctx: click.Context, option: click.Parameter, path: str | None) -> None:
    ctx.meta[_CA_CERT] = path


# Each client needs it and no command does anything else with it, so it is no argument of theirs.
ca_cert_option = click.option(
    "--ca-cert",
    envvar="SCHEDO_CA_CERT",
    show_envvar=True,
    metavar="FILE",
    expose_value=False,
    callback=_remember,
    help="PEM file of the only authorities to trust for https.  [default: those of the system]",
)


def make_client(kind: Callable[..., C], url: str, token_file: str | None) -> C:
    """Return a client; raise UsageError if the URL, the token or the authorities are not valid."""
    try:
        context = click.get_current_context(silent=True)
        token = read_token(token_file) if token_file else os.environ.get("SCHEDO_TOKEN") or None
        ca_cert = context and context.meta.get(_CA_CERT)
        return kind(url, token, ca_cert=ca_cert)
    except Invalid as error:
        raise click.UsageError(str(error)) from error
