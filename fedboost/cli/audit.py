"""`fedboost audit attack`: a party attacks its own record of a job."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedboost.audit import attacks, transcript
from fedboost.audit.attacks import AttackPlan
from fedboost.audit.findings import LINKINGS, Finding
from fedboost.audit.linear import SOLVERS
from fedboost.audit.transcript import AuditResult
from fedboost.cli.complete import jobs_here
from fedboost.cli.connect import DAEMON, FILE, JSON
from fedboost.cli.groups import audit_group
from fedboost.flow import Artefact
from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.ground.printable import printable
from fedboost.ground.settings import load_settings
from fedboost.report import page, units
from fedboost.report.audit import LINKED
from fedboost.report.consoles import plain_console
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.store.transcripts import Transcripts


@audit_group.command("attack")
@click.argument("job", shell_complete=jobs_here)
@DAEMON
@click.option("--linking", type=click.Choice(LINKINGS), multiple=True,
              help="Knowledge of an attacker of sums; by default every kind in turn.")  # fmt: skip
@click.option(
    "--columns",
    type=click.IntRange(min=1),
    default=attacks.COLUMNS_DRAWN,
    show_default=True,
    help="Number of our columns to attack, drawn among all.",
)
@click.option("--solver", type=click.Choice(tuple(SOLVERS)), default="nearest", show_default=True,
              help="The point, among those that fit the sums, that ranks our rows: the one "
                   "nearest to chance, or a corner from linear programming alone, which takes "
                   "minutes.")  # fmt: skip
@click.option("--out", type=FILE, help="Write the findings to an HTML file.")
@JSON
def audit(job: str, config: Path, out: Path | None, as_json: bool, **how: Any) -> None:
    """Show what the other parties of JOB could have learnt from this party.

    \b
      fedboost audit attack credit-1a2b3c4d --config configs/party-telco.yaml --out audit.html

    The attack on a host's bins is linear programming on its released sums; on a guest's labels, the
    row groups that hosts have seen; on membership in the training rows, the model's losses. Each
    result is shown beside chance. The command reads this party's own store and contacts no one; the
    daemon may run. The findings stay in the store and appear on the page of `fedboost job report
    --config`.
    """
    party = load_settings(PartyConfig, config)
    kept = Transcripts(party.store)
    plan = AttackPlan(how["linking"] or LINKINGS, how["columns"], SOLVERS[how["solver"]])
    report = _with_progress(kept.load(job), plan)
    kept.keep_findings(job, report.findings)
    if out is not None:
        drawn = page.audit_page(job, party.name, report.findings)
        write_file(out.absolute(), drawn.encode(), PUBLIC_MODE)
    if as_json:
        click.echo(json.dumps(_as_dict(job, party.name, report)))
    else:
        _print_result(report)


def _with_progress(kept: Artefact, plan: AttackPlan) -> AuditResult:
    console = plain_console(stderr=True)
    shown = (TextColumn("attacking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task("attacking", total=None)
        return transcript.run_audit(
            kept, plan, lambda done, of: progress.update(task, completed=done, total=of)
        )


def _as_dict(job: str, party: str, result: AuditResult) -> dict[str, Any]:
    listed = [{**asdict(finding), "says": finding.sentence()} for finding in result.findings]
    facts: dict[str, Any] = {"job": job, "party": party, "trees": result.trees, "rows": result.rows}
    facts["equations_per_row"] = result.equations_per_row
    return {**facts, "columns": list(result.columns), "findings": listed}


def _print_result(result: AuditResult) -> None:
    trees, rows = units.plural(result.trees, "tree"), units.plural(result.rows, "row")
    click.echo(f"from what is kept of {trees} and {rows}:")
    if result.equations_per_row is not None:
        equations = f"{result.equations_per_row:.3f} equations about one of our bins for each row"
        click.echo(f"the sums that left are up to {equations}")
    if not result.findings:
        click.echo("there was nothing to attack: no cut has left, or no label can be ranked")
        return
    table = Table("attack on", "attacker", "measure", "found", "chance", "at worst", "tried")
    for finding in result.findings:
        table.add_row(*(Text(printable(cell)) for cell in _finding_cells(finding)))
    plain_console().print(table)
    for finding in result.findings:
        click.echo(f"- {printable(finding.sentence())}")


def _finding_cells(finding: Finding) -> tuple[str, ...]:
    numbers = (f"{value:.3f}" for value in (finding.value, finding.chance, finding.worst))
    who = LINKED.get(finding.linking, finding.about)
    return (finding.attack, who, finding.measure, *numbers, units.in_count(finding.tried))
