"""`fedboost ledger verify`, `export`, `diff`, `restored`: checks and comparisons of ledgers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import click

from fedboost.cli.connect import FILE, JSON, OUT
from fedboost.cli.groups import ledger_group
from fedboost.cli.ledger import PARTY_CONFIG, opened_ledger, printable_text
from fedboost.ground.disk import SECRET_MODE, read_file, write_file
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import load_settings
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger import comparison, signed_heads
from fedboost.runtime.ledger.comparison import Difference
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.policy.judgement import Signatures, Trust, signature_checker


@ledger_group.command("verify")
@PARTY_CONFIG
@JSON
def verify(file: Path, as_json: bool) -> None:
    """Check every row's hash, the chain and the signed heads; the first that is broken is named.

    \b
      fedboost ledger verify --config configs/party-telco.yaml
    """
    config = load_settings(PartyConfig, file)
    with opened_ledger(config) as ledger:
        head = signed_heads.verify_ledger(ledger, config.name, signature_checker(config))
        signed = ledger.kept()
    ours = sum(head.party == config.name for head in signed)
    if as_json:
        counts = {"signed": ours, "signed_by_peers": len(signed) - ours}
        click.echo(json.dumps({"whole": True, "rows": head.n, "head": head.hash, **counts}))
        return
    click.echo(f"the ledger is whole: {head.n} rows, head {head.hash}")
    click.echo(f"signed heads: {ours} of our own, {len(signed) - ours} of our peers")


@ledger_group.command("export")
@PARTY_CONFIG
@click.option("--job", required=True, metavar="ID", help="The job of the rows.")
@click.option("--for", "reader", metavar="PARTY",
              help="Show the rows about this peer alone; the others stay hashes.")  # fmt: skip
@OUT
def export(file: Path, job: str, reader: str | None, out: Path) -> None:
    """Write a job's rows into a signed file that a peer can compare with its own.

    \b
      fedboost ledger export --config party-telco.yaml --job credit-1a2b3c4d --out t.ledger
      fedboost ledger export --config party-telco.yaml --job credit-1a2b3c4d --for bank --out t.txt
    """
    config = load_settings(PartyConfig, file)
    with opened_ledger(config) as ledger:
        signed_heads.verify_ledger(ledger, config.name, signature_checker(config))
        text = comparison.export_rows(
            ledger, config.name, job, reader, _own_signatures(config).sign
        )
    write_file(out, text, SECRET_MODE)
    click.echo(f"written: {out}")


@ledger_group.command("diff")
@PARTY_CONFIG
@click.option("--with", "other", type=FILE, metavar="FILE", help="A peer's exported file.")
@click.option("--job", metavar="ID", help="Compare with the heads that peers signed in this job.")
@JSON
def diff(file: Path, other: Path | None, job: str | None, as_json: bool) -> int:
    """Compare our rows of a job with a peer's, payload for payload; exit code 1 if they differ.

    \b
      fedboost ledger diff --config configs/party-bank.yaml --with t.ledger
      fedboost ledger diff --config configs/party-bank.yaml --job credit-1a2b3c4d
    """
    if (other is None) == (job is None):
        raise ConfigError("nothing to compare with", todo="give either --with FILE or --job ID")
    config = load_settings(PartyConfig, file)
    check = signature_checker(config)
    with opened_ledger(config) as ledger:
        signed_heads.verify_ledger(ledger, config.name, check)
        if other is not None:
            theirs = comparison.read_export(read_file(other), check)
            differences = comparison.compare_ledgers(ledger, config.name, theirs)
        else:
            differences = comparison.contradicted_rows(ledger, config.name, job or "")
    return _print_differences(differences, as_json=as_json)


@ledger_group.command("restored")
@PARTY_CONFIG
@click.option(
    "--seen", is_flag=True, help="Confirm that you have seen the gap: jobs may run again."
)
def restored(file: Path, seen: bool) -> None:
    """Show rows that this party has signed but its restored ledger lacks.

    \b
      fedboost ledger restored --config configs/party-telco.yaml --seen

    Peers keep our signatures. The account does not count the disclosure in those rows: before you
    give --seen, lower `disclosure_max` and `epsilon_row_max` by the amount they may have used.
    """
    config = load_settings(PartyConfig, file)
    with closing(Ledger(config.store / "store.sqlite", read_only=not seen)) as ledger:
        if seen:
            ledger.mark_gaps_seen()
        for gap in ledger.recorded_gaps():
            known = f"seen by the owner {gap.seen}" if gap.seen else "no job runs until --seen"
            sentence = (
                f"{gap.peer} has our signature of row {gap.n} (job {gap.job}), which this "
                f"ledger lacks: {known}"
            )
            click.echo(printable_text(sentence))
        if not ledger.recorded_gaps():
            click.echo("no peer has shown a row that this ledger lacks")


def _print_differences(differences: list[Difference], *, as_json: bool) -> int:
    """Print the differences and return the exit code."""
    differ = [difference.text for difference in differences if difference.is_settled]
    on_the_way = [difference.text for difference in differences if not difference.is_settled]
    if as_json:
        click.echo(json.dumps({"agree": not differ, "differ": differ, "on_the_way": on_the_way}))
        return 1 if differ else 0
    for text in on_the_way:
        click.echo(printable_text(f"on its way when its attempt ended: {text}"))
    for text in differ:
        click.echo(printable_text(text))
    click.echo(f"the ledgers differ in {len(differ)} places" if differ else "the ledgers agree")
    return 1 if differ else 0


def _own_signatures(config: PartyConfig) -> Signatures:
    tls = config.tls
    if tls is None:
        raise ConfigError(
            "insecure_loopback has no certificate, so a peer could not check the signature",
            todo="give the party tls: fedboost certs create",
        )
    return Signatures(Trust.of_files(tls, config.name), insecure=False)
