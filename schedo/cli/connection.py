"""The options of the server's address: --url and --token-file, or their variables."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schedo.cli.make_client import ca_cert_option, make_client
from schedo.cli.names import suggest_name
from schedo.errors import NotFound

if TYPE_CHECKING:
    from schedo.client.sync import Client

DEFAULT_URL = "http://127.0.0.1:8080"


def server_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options --url, --token-file and --ca-cert."""
    url = click.option(
        "--url",
        envvar="SCHEDO_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="URL of the server, or unix:/PATH for its Unix socket.",
    )
    token_file = click.option(
        "--token-file",
        envvar="SCHEDO_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help="File with the server's token; or set SCHEDO_TOKEN.",
    )
    return url(token_file(ca_cert_option(function)))


def connected(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options --url and --token-file, and pass a client to the command."""

    @server_options
    @functools.wraps(function)
    def command(*args: Any, url: str, token_file: str | None, **options: Any) -> None:
        from schedo.client.sync import Client

        context = click.get_current_context()
        context.meta[_OPTIONS] = {
            f"{parent}/{each.name}": each.opts[-1]
            for each in context.command.params
            for parent in ("", "/where")
        }
        with make_client(partial(Client, agent="schedo-cli"), url, token_file) as client:
            try:
                with telling_unreadable(client):
                    function(client, *args, **options)
            except NotFound as error:
                if hint := suggest_name(context, client):
                    raise NotFound(f"{error}{hint}") from error
                raise

    return command


@contextmanager
def telling_unreadable(client: Client) -> Iterator[None]:
    """Raise NotSchedo if the block cannot read what the server has answered.

    The client has checked the main fields. The rest is what another program, or a server of another
    version, may have in another form; the place is for a bug in the command.
    """
    try:
        yield
    except UnicodeError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if not client.has_answered:
            raise
        from schedo.client.errors import NotSchedo

        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        raise NotSchedo(
            f"cannot read what {client.url} answered: it is no schedo server, or one of another"
            f" version ({type(error).__name__}: {error}, {where})"
        ) from error


_JSON = "schedo.json"
_OPTIONS = "schedo.options"


def _remember(ctx: click.Context, option: click.Parameter, is_json: bool) -> bool:
    ctx.meta[_JSON] = is_json
    return is_json


def wants_json(ctx: click.Context) -> bool:
    """Return whether the command was called with --json."""
    return bool(ctx.meta.get(_JSON))


def options_by_pointer(ctx: click.Context) -> Mapping[str, str]:
    """Return the option for each field of the request that the command has sent."""
    options: Mapping[str, str] = ctx.meta.get(_OPTIONS, {})
    return options


# Eager, so that an error in another option is printed as JSON as well.
as_json = click.option(
    "--json", "is_json", is_flag=True, is_eager=True, callback=_remember, help="Print JSON."
)
