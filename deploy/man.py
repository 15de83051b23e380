"""Writes man pages of every command into a folder; needs click-man 0.6.0: python man.py OUT."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from fedboost import __version__
from fedboost.cli.groups import cli


def loaded(group: click.Group) -> click.Group:
    """The group with its commands in place, which load when they are used otherwise."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        group.commands[name] = loaded(command) if isinstance(command, click.Group) else command
    return group


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    write_man_pages("fedboost", loaded(cli), version=__version__, target_dir=str(out))
