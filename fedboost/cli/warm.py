"""`fedboost warm`: compiles every kernel once for this machine."""

from __future__ import annotations

import json
import logging

import click
from rich.console import Console

from fedboost.cli.connect import JSON
from fedboost.cli.groups import cli
from fedboost.errors import ConfigError


@cli.command("warm")
@JSON
def warm(as_json: bool) -> None:
    """Compile what jobs compute with, once for this machine, so that no job has to.

    \b
      fedboost warm
      NUMBA_CACHE_DIR=/srv/fedboost/kernels fedboost warm

    It runs a small job of each kind and keeps the machine code with the installation, where every
    user of it reads it, or else in the user's own cache. Needed again after an update or on another
    kind of processor; what is there already is not compiled again.
    """
    from fedboost import kernel_files
    from fedboost.runtime.cluster import warming

    logging.disable(logging.WARNING)  # what parties of made-up tables warn of
    folder = kernel_files.writable()
    if folder is None:
        tried = ", ".join(str(place) for place in kernel_files.folders())
        raise ConfigError(
            "no folder may hold compiled kernels, or others could write it",
            todo=f"name a folder of your own: {kernel_files.VARIABLE}=DIR fedboost warm",
            tried=tried,
        )
    console = Console(stderr=True)
    with console.status("compiling") as status:
        done = warming.warm(lambda job: status.update(f"a job of {job}"))
    if as_json:
        said = {"compiled": len(done.compiled), "read": done.read, "seconds": done.seconds}
        click.echo(json.dumps({**said, "folder": str(folder), "cold": done.cold}))
        return
    click.echo(f"compiled {len(done.compiled)} kernels, {done.read} were there already")
    click.echo(f"they lie in {folder}; it took {done.seconds:.0f} s")
