"""`fedboost schema`: the JSON Schema of a settings or job file."""

from __future__ import annotations

import json

import click

from fedboost.cli.groups import cli

# `schemas.FILES`, unloaded.
SETTINGS_FILES = ("client", "coordinator", "dataset", "job", "party", "relay")


@cli.command("schema")
@click.argument("file", type=click.Choice(SETTINGS_FILES))
def schema(file: str) -> None:
    """Print the JSON Schema of a settings or job file, for editors.

    \b
      fedboost schema party > party.schema.json
      fedboost schema job > job.schema.json

    With `# yaml-language-server: $schema=party.schema.json` in a file's first line, editors
    complete its keys and mark errors.
    """
    from fedboost.runtime.client.schemas import json_schema

    click.echo(json.dumps(json_schema(file), indent=1))
