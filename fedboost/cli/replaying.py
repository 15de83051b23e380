"""`fedboost audit replay`, `verify` and `forget`: a guest that shows that it was honest."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from fedboost.cli.complete import jobs_here
from fedboost.cli.connect import DAEMON, FILE, JSON, YES
from fedboost.cli.groups import audit_group
from fedboost.cli.ledger import printable_text
from fedboost.ground.disk import PUBLIC_MODE, read_file, write_file
from fedboost.ground.settings import load
from fedboost.runtime.config.daemons import PartyConfig


@audit_group.command("replay")
@click.argument("job", shell_complete=jobs_here)
@DAEMON
@click.option("--out", type=FILE, help="Writes the result, signed, for the auditor and the hosts.")
@JSON
def replay(job: str, config: Path, out: Path | None, as_json: bool) -> int:
    """Show that this party, the guest of JOB, sent what honest training sends, and nothing else.

    \b
      fedboost audit replay credit-1a2b3c4d --config configs/party-bank.yaml --out replay.json

    It does the guest's steps again, from the table, the job's sealed secret and what came from the
    hosts, and holds each payload to the ledger. For jobs with `replayable: true`, while they rest.
    Hosts check the file with `fedboost audit verify`. Exit code 1 where a payload is another one,
    tree and node of which are named, and where hosts have not signed all that passed.
    """
    from fedboost.runtime.party.owner import replay_results, replays
    from fedboost.runtime.process.workers import ProcessWorkers

    party = load(PartyConfig, config)
    began = time.process_time()
    shown = (TextColumn("replaying"), TimeElapsedColumn(), TextColumn("{task.completed} steps"))
    with ProcessWorkers(len(os.sched_getaffinity(0))) as workers:
        with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("replaying", total=None)
            result = replays.replay(
                party, job, workers, lambda count: progress.advance(task, count)
            )
        cpu_s = time.process_time() - began + workers.cpu_seconds()
    if out is not None:
        write_file(out.absolute(), replay_results.sign(party, result), PUBLIC_MODE)
    if as_json:
        ways = {"sent": {"hashes"}, "came": {"hashes"}}
        facts = result.model_dump(mode="json", exclude={"peers": dict.fromkeys(result.peers, ways)})
        facts |= {"is_honest": result.is_honest, "not_shown": result.not_shown}
        click.echo(json.dumps({**facts, "cpu_seconds": round(cpu_s, 3)}))
    else:
        for sentence in result.sentences():
            click.echo(printable_text(sentence))
    return 0 if result.is_honest else 1


@audit_group.command("verify")
@click.argument("file", type=FILE)
@DAEMON
@JSON
def verify(file: Path, config: Path, as_json: bool) -> int:
    """Check the signed FILE of a guest's replay, and hold it to what this party got and sent.

    \b
      fedboost audit verify replay.json --config configs/party-telco.yaml

    What this party's ledger says came from the guest must be what the replay has confirmed, and
    what it sent to the guest what the replay was given. Exit code 1 if anything differs or is
    missing, or the replay found a difference itself.
    """
    from fedboost.runtime.party.owner import replay_results

    party = load(PartyConfig, config)
    result = replay_results.read(party, read_file(file))
    differing = replay_results.compare(party, result)
    unseen = {name: count for name, count in result.not_shown.items() if name != party.name}
    if as_json:
        summary = {"job": result.job, "party": result.party, "is_confirmed": result.is_confirmed}
        click.echo(json.dumps({**summary, "differing": differing, "not_shown": unseen}))
    else:
        for sentence in (*result.sentences(), *differing):
            click.echo(printable_text(sentence))
        if not differing:
            passed = f"all that passed between it and {party.name} was replayed"
            click.echo(f"{result.party} signed it; {passed}")
    return 0 if result.is_confirmed and not differing else 1


@audit_group.command("forget")
@click.argument("job", shell_complete=jobs_here)
@DAEMON
@YES
def forget(job: str, config: Path, yes: bool) -> int:
    """Destroy what this party kept of JOB for a replay: its secret, and what it received.

    \b
      fedboost audit forget credit-1a2b3c4d --config configs/party-bank.yaml

    Job, model and ledger stay. Afterwards nobody can show that the guest was honest.
    """
    from fedboost.runtime.party.owner import replays

    party = load(PartyConfig, config)
    if not yes and not click.confirm(f"destroy what a replay of {job} takes?", err=True):
        click.echo("nothing was destroyed", err=True)
        return 1
    replays.forget(party, job)
    click.echo(f"{job} can no longer be replayed")
    return 0
