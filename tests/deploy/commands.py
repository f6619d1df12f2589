"""Whether schedo knows a command line that a file of deploy/ has."""

from __future__ import annotations

from collections.abc import Sequence

import click

from schedo.cli.main import cli


def accept(command: Sequence[str]) -> None:
    """Raise click.ClickException if schedo does not know the command or one of its options."""
    name, *arguments = command
    subcommand = cli.get_command(click.Context(cli), name)
    assert subcommand is not None, name
    with subcommand.make_context(name, arguments):
        pass
