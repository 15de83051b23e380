"""`fedboost audit replay`, `verify` and `forget`: proof that a guest was honest."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from fedboost.cli.complete import jobs_here
from fedboost.cli.connect import DAEMON, FILE, JSON, YES
from fedboost.cli.groups import audit_group
from fedboost.cli.ledger import printable_text
from fedboost.ground.disk import PUBLIC_MODE, read_file, write_file
from fedboost.ground.settings import load_settings
from fedboost.report.consoles import plain_console
from fedboost.runtime.config.daemons import PartyConfig


@audit_group.command("replay")
@click.argument("job", shell_complete=jobs_here)
@DAEMON
@click.option("--out", type=FILE, help="Write the signed result, for the auditor and the hosts.")
@JSON
def replay(job: str, config: Path, out: Path | None, as_json: bool) -> int:
    """Show that this party, the guest of JOB, sent exactly the payloads of honest training.

    \b
      fedboost audit replay credit-1a2b3c4d --config configs/party-bank.yaml --out replay.json

    It repeats the guest's steps from the table, the job's sealed secret and the messages from the
    hosts, and compares each payload with the ledger. It works for jobs with `replayable: true` that
    are not running. Hosts check the file with `fedboost audit verify`. The exit code is 1 if a
    payload differs, with its tree and node, or if hosts have not signed all messages.
    """
    from fedboost.runtime.party.owner import replay_results, replays
    from fedboost.runtime.process.workers import ProcessWorkers

    party = load_settings(PartyConfig, config)
    began = time.process_time()
    shown = (TextColumn("replaying"), TimeElapsedColumn(), TextColumn("{task.completed} steps"))
    with ProcessWorkers(len(os.sched_getaffinity(0))) as workers:
        with Progress(*shown, console=plain_console(stderr=True), transient=True) as progress:
            task = progress.add_task("replaying", total=None)
            result = replays.replay_job(
                party, job, workers, lambda count: progress.advance(task, count)
            )
        cpu_s = time.process_time() - began + workers.cpu_seconds()
    if out is not None:
        write_file(out.absolute(), replay_results.sign_result(party, result), PUBLIC_MODE)
    if as_json:
        ways = {"sent": {"hashes"}, "came": {"hashes"}}
        facts = result.model_dump(mode="json", exclude={"peers": dict.fromkeys(result.peers, ways)})
        facts |= {"is_honest": result.is_honest, "not_shown": result.unsigned_counts}
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
    """Check the signed FILE of a guest's replay against this party's ledger.

    \b
      fedboost audit verify replay.json --config configs/party-telco.yaml

    Messages from the guest in this party's ledger must be those that the replay confirmed; messages
    to the guest must be those that the replay used. The exit code is 1 if any differs or is
    missing, or if the replay itself found a difference.
    """
    from fedboost.runtime.party.owner import replay_results

    party = load_settings(PartyConfig, config)
    result = replay_results.read_result(party, read_file(file))
    differing = replay_results.compare_with_ledger(party, result)
    unseen = {name: count for name, count in result.unsigned_counts.items() if name != party.name}
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
    """Destroy this party's replay data of JOB: its secret, and the received messages.

    \b
      fedboost audit forget credit-1a2b3c4d --config configs/party-bank.yaml

    Job, model and ledger stay. Afterwards the guest's honesty cannot be shown.
    """
    from fedboost.runtime.party.owner import replays

    party = load_settings(PartyConfig, config)
    if not yes and not click.confirm(f"destroy the replay data of {job}?", err=True):
        click.echo("nothing was destroyed", err=True)
        return 1
    replays.forget_record(party, job)
    click.echo(f"{job} can no longer be replayed")
    return 0
