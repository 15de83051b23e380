"""`fedboost party page` and `fedboost coordinator page`: the link that signs in to a page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedboost.cli.groups import coordinator_group, party_group
from fedboost.pages import token
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.settings import load


def _command(kind: type[DaemonConfig], whose: str) -> click.Command:
    @click.command("page")
    @click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The daemon's settings file.",
    )
    @click.option("--new", is_flag=True, help="Draw another token; whoever has signed in is out.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    def page(config: Path, new: bool, as_json: bool) -> None:
        ours = load(kind, config)
        token.page_of(ours)  # refuses settings without a page
        own = token.renew(ours.store) if new else token.token(ours.store)
        url = token.sign_in_url(ours, own)
        click.echo(json.dumps({"url": url}) if as_json else url)

    page.help = f"""Print the link that signs you in to {whose} page, token included.

    \b
      fedboost {_EXAMPLES[kind]}

    Whoever has the link can do there what `page.user` of the settings may do. The token lies in
    the store, in a file that only the daemon's user can read.
    """
    return page


_EXAMPLES: dict[type[DaemonConfig], str] = {
    CoordinatorConfig: "coordinator page --config configs/coordinator.yaml",
    PartyConfig: "party page --config configs/party-bank.yaml",
}

party_group.add_command(_command(PartyConfig, "the party's"))
coordinator_group.add_command(_command(CoordinatorConfig, "the coordinator's"))
