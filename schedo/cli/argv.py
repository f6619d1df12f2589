"""Reads the command that a job shall run from the command line.

A single word is a shell line; several words are an argv list. Words after `--` are always an argv
list and stay unchanged, even those that begin with a hyphen.
"""

from __future__ import annotations

import click

_KEY = "schedo.argv"


class ArgvCommand(click.Command):
    """A click command that does not parse the words after `--` as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the words after the first `--` and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def read_command(before: tuple[str, ...]) -> str | list[str] | None:
    """Return the given shell line or argv list, or None if there is neither."""
    after: list[str] | None = click.get_current_context().meta.get(_KEY)
    if after is None:
        return list(before) if len(before) > 1 else before[0] if before else None
    if before:
        raise click.UsageError(f"give the command before or after --, not both: {before[0]!r}")
    if not after:
        raise click.UsageError("a command must follow --")
    return after
