"""`schedo open`: opens the server's page in a browser, logged in by a one-time link."""

from __future__ import annotations

import os
import sys

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_json
from schedo.client import monitoring_operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.errors import Invalid

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@click.command("open")
@click.option("--print", "is_printed", is_flag=True, help="Print the link and open no browser.")
@as_json
@connected
def open_(client: Client, is_printed: bool, is_json: bool) -> None:
    """Open the page of the server in a browser.

    If the server needs a token, the link logs the browser in with the role of yours. It is good
    for one use within a minute, and does not contain the token.
    """
    made = _make_link(client)
    if is_json:
        print_json(made)
    elif is_printed:
        click.echo(made["url"])
    elif not _launch(made["url"]):
        within = " within a minute" if "expires_at" in made else ""
        click.echo(f"There is no browser here. Open this in one{within}:", err=True)
        click.echo(made["url"])


def _launch(url: str) -> bool:
    """Open a browser with windows; return whether there is one. The page needs JavaScript."""
    import webbrowser  # here, because only this command needs it

    has_windows = sys.platform == "darwin" or any(map(os.environ.get, _SCREENS))
    return has_windows and webbrowser.open(url)


def _make_link(client: Client) -> Record:
    me = client.send(monitoring_operations.get_me())
    address = me.get("public_url", client.url).rstrip("/")
    if address.startswith("unix:"):
        raise Invalid(
            "a browser cannot open a Unix socket; give the server the address of a proxy with"
            " --public-url"
        )
    if me["access"] != "token":
        return {"url": address + "/"}
    made = client.send(monitoring_operations.create_session_link())
    return {"url": f"{address}/login#link={made['link']}", "expires_at": made["expires_at"]}
