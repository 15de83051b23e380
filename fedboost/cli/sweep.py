"""`fedboost job sweep`: cross-validation and searches over settings, on one alignment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from fedboost.cli.cluster import CLUSTER_FOLDER, read_sources
from fedboost.cli.connect import (
    DIRECTORY,
    FILE,
    JSON,
    CoordinatorAccess,
    connection_options,
    run_coroutine,
)
from fedboost.cli.groups import job_group
from fedboost.cli.sweeping import RECORD_FILE, START_S, Course, Where, place_in_process
from fedboost.data.reading import read_sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.report import units
from fedboost.report.consoles import plain_console
from fedboost.report.page import sweep_page
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import complete_spec
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.submitted import check_spec
from fedboost.sweep import leaks, plan
from fedboost.sweep.plan import SECTION, Sweep, settings_in_words
from fedboost.sweep.record import TRAIN, SweepRecord, TrialResult, load_record

REPORT = "report.html"
SHOWN_MAX = 30  # trials in the terminal's table; the report has all


@dataclass(frozen=True)
class Options:
    """Output folder and mode of a sweep."""

    data: tuple[str, ...]
    simulate: bool
    folder: Path  # of a local cluster or a simulation
    out: Path  # of the sweep's own files
    resume: bool
    fit_best: bool
    as_json: bool


@job_group.command("sweep")
@click.argument("file", type=FILE)
@click.option("--data", multiple=True, metavar="PARTY=FILE",
              help="Tables, for daemons of our own here; once for each party.")  # fmt: skip
@click.option("--simulate", is_flag=True, help="With --data: all parties in this process.")
@click.option("--dir", "folder", type=DIRECTORY, default=CLUSTER_FOLDER,
              show_default=True, help="With --data: folder of stores, models, logs.")  # fmt: skip
@click.option("--out", type=DIRECTORY,
              help="Folder for the sweep's record and report.  [default: NAME-sweep]")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue a sweep that has begun.")
@click.option("--fit-best", is_flag=True, help="Then train with the best settings.")
@click.option("--dry-run", is_flag=True, help="List the jobs of the sweep, and stop.")
@JSON
@connection_options
def sweep(file: Path, *, dry_run: bool, coordinator: CoordinatorAccess, **given: Any) -> int:
    """Try the settings and folds in the section `sweep` of the job in FILE.

    \b
      sweep:
        params: {max_depth: [3, 5], learning_rate: [0.1, 0.3]}
        folds: 5
        metric: auc

    \b
      fedboost job sweep sweep.yaml --coordinator coord:7100 --fit-best
      fedboost job sweep sweep.yaml --data bank=bank.parquet --data telco=telco.parquet

    The first job finds the rows in common for all. Jobs that fail do not end the sweep; run it
    again with --resume to try them again, or to continue after an interruption.
    """
    base, sources = _read_sweep(file, given["data"])
    options = Options(**given | {"out": given["out"] or Path(f"{base.base.name}-sweep")})
    if options.simulate and not options.data:
        raise ConfigError("--simulate needs tables", todo="give --data PARTY=FILE for each party")
    _print_announcement(base, sources)
    if dry_run:
        return _print_dry_run(base, as_json=options.as_json)
    record = _open_record(base, options)
    course = Course(record, options.out)
    with ExitStack() as stack:
        where = _choose_place(stack, base, sources, options, coordinator)
        try:
            run_coroutine(_run_course(course, where, fit=options.fit_best))
        except KeyboardInterrupt:
            click.echo(f"to go on: fedboost job sweep {file} --resume", err=True)
            raise
    return _print_conclusion(record, options)


def _read_sweep(file: Path, data: tuple[str, ...]) -> tuple[Sweep, dict[str, SourceSpec]]:
    raw = read_yaml(file)
    if not isinstance(raw, dict) or not isinstance(raw.get(SECTION), Mapping):
        raise ConfigError(
            f"the file has no section {SECTION!r}",
            todo=f"add {SECTION}: {{params: {{max_depth: [3, 5]}}, folds: 5}} to a job",
            file=str(file),
        )
    job = {key: value for key, value in raw.items() if key != SECTION}
    sources = read_sources(data)
    where = {"file": str(file)}
    spec = complete_spec(job, sources, **where) if data else parse_settings(JobSpec, job, **where)
    check_spec(spec, **where)
    if spec.parties.guests is not None:
        raise ConfigError(
            "a sweep needs a job with one guest, and this job names several",
            todo="write one file for each guest",
            key="parties.guests",
            **where,
        )
    planned = plan.read_sweep(raw[SECTION], spec, **where)
    for member in planned.members:
        try:
            check_spec(member.spec, **where)
        except FedboostError as error:
            raise error.at(trial=settings_in_words(member.trial.values)) from None
    return planned, sources


def _print_announcement(sweep: Sweep, sources: Mapping[str, SourceSpec]) -> None:
    """Print the number of jobs, and their joint disclosure."""
    folds = sweep.settings.folds
    of = f" on {folds} folds" if folds else ""
    trials = units.plural(len(sweep.trials), "trial")
    click.echo(f"{trials}{of}: {units.plural(len(sweep.members), 'job')}", err=True)
    # The rows in common are at most the rows of the smallest table.
    counts = [read_sheet(source, party=party).n_rows for party, source in sources.items()]
    for sentence in leaks.sentences(sweep, min(counts, default=None), Policy().disclosure_max):
        click.echo(f"  {sentence}", err=True)


def _print_dry_run(sweep: Sweep, *, as_json: bool) -> int:
    if as_json:
        jobs = [member.spec.model_dump(mode="json") for member in sweep.members]
        click.echo(json.dumps({"name": sweep.base.name, "metric": sweep.metric, "jobs": jobs}))
        return 0
    for trial in sweep.trials:
        click.echo(f"{trial.number}: {settings_in_words(trial.values)}")
    return 0


def _open_record(sweep: Sweep, options: Options) -> SweepRecord:
    path = options.out / RECORD_FILE
    if path.is_file() and not options.resume:
        raise ConfigError(
            "a sweep has already begun there",
            todo="continue it with --resume, or choose another folder with --out",
            file=str(path),
        )
    return load_record(sweep, path)


def _choose_place(
    stack: ExitStack,
    sweep: Sweep,
    sources: dict[str, SourceSpec],
    options: Options,
    coordinator: CoordinatorAccess,
) -> Where:
    """Return how to reach the coordinator: a running one, our own daemons' or this process's."""
    if not options.data:
        config = coordinator.config
        return lambda: CoordinatorClient(config)
    if options.simulate:
        return place_in_process(options.folder, sweep.base, sources)
    cluster = stack.enter_context(ClusterProcesses(options.folder, sweep.base, sources))
    return lambda: CoordinatorClient(cluster.client, retry_s=START_S)


async def _run_course(course: Course, where: Where, *, fit: bool) -> None:
    async with where() as jobs:
        await course.run(jobs)
        if fit:
            await course.fit(jobs)


def _print_conclusion(record: SweepRecord, options: Options) -> int:
    """Print the table, the report's path and the unfinished jobs; return the exit code."""
    report = options.out / REPORT
    write_file(report, sweep_page(record).encode(), PUBLIC_MODE)
    if options.as_json:
        click.echo(json.dumps({**record.said(), "report": str(report)}))
    else:
        _print_standings(record)
        click.echo(f"report: {report}")
    left = [m.key for m in record.sweep.members if record.of(m).state != "finished"]
    if left:
        click.echo(
            f"not finished: {units.plural(len(left), 'job')}; --resume tries again", err=True
        )
    return record.code


def _print_standings(record: SweepRecord) -> None:
    standings, metric = record.standings(), record.sweep.metric
    table = Table(
        title=f"{record.sweep.base.name}: {metric} on rows held out", title_justify="left"
    )
    names = list(record.sweep.settings.params)
    for head in ("rank", *names, metric, "train", "seconds"):
        table.add_column(head, justify="right")
    for standing in standings[:SHOWN_MAX]:
        values = [
            plan.settings_in_words({name: standing.trial.values[name]})[len(name) + 1 :]
            for name in names
        ]
        rank = "" if standing.rank is None else str(standing.rank)
        style = "bold" if standing.rank == 1 else "dim" if standing.rank is None else ""
        table.add_row(
            rank, *values, *_metric_and_spread(standing), f"{standing.seconds:.1f}", style=style
        )
    console = plain_console()
    console.print(table)
    if len(standings) > SHOWN_MAX:
        console.print(f"and {len(standings) - SHOWN_MAX} more in the report")
    if standings[0].rank is not None:
        console.print(f"best: {settings_in_words(standings[0].trial.values)}")
    if record.best is not None and record.best.job is not None:
        console.print(f"trained with the best: model {record.best.job}")


def _metric_and_spread(standing: TrialResult) -> tuple[str, str]:
    if not standing.is_whole:
        states = sorted({entry.state for entry in standing.entries} - {"finished"})
        return ", ".join(states), ""
    return f"{standing.mean:.4f} ± {standing.std:.4f}", f"{standing.mean_of(TRAIN):.4f}"
