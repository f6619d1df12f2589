"""`schedo config show`: prints the settings that a server would use, and their sources."""

from __future__ import annotations

import json
from typing import Any

import click

from schedo.cli.connection import as_json
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load, setting_options
from schedo.cli.tables import print_json, print_table
from schedo.config import describe_config
from schedo.config_checks import check_config
from schedo.errors import Invalid


@click.group()
def config() -> None:
    """Show the configuration of the server."""


@config.command()
@config_file
@as_json
@setting_options
def show(path: str | None, is_json: bool, **flags: Any) -> None:
    """Print the settings of a server started here, with their sources."""
    loaded = load(path, flags)
    settings = list(describe_config(loaded))
    if is_json:
        names = ("key", "value", "source")
        print_json([dict(zip(names, row, strict=True)) for row in settings])
    else:
        print_table(
            ("KEY", "VALUE", "SOURCE"),
            [(key, _render(value), source) for key, value, source in settings],
        )
    try:
        check_config(loaded)
    except Invalid as error:
        click.echo(
            f"schedo: a server would not start with these settings: {escape(str(error))}", err=True
        )


def _render(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
