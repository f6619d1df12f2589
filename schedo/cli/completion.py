"""`schedo completion`: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    The shell also completes names of schedules, queues, workers and tasks, and ids of recent jobs.

    bash: add  eval "$(schedo completion bash)"  to ~/.bashrc; zsh: the same in ~/.zshrc;
    fish: schedo completion fish > ~/.config/fish/completions/schedo.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "schedo", "_SCHEDO_COMPLETE").source())
