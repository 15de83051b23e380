"""`fedboost estimate`: cost of a job before it runs; `fedboost warm`: compiles kernels."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from fedboost.cli.cluster import read_sources
from fedboost.cli.connect import FILE, JSON
from fedboost.cli.groups import cli
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.report import units
from fedboost.report.consoles import plain_console
from fedboost.runtime.cluster.local import DATASET, complete_spec
from fedboost.runtime.estimate import prices
from fedboost.runtime.estimate.estimate import Estimate, Placement, estimate
from fedboost.runtime.estimate.setting import Setting, StatedSizes, from_tables, from_words
from fedboost.runtime.jobs.submitted import check_spec
from fedboost.runtime.process.memory_limit import machine_bytes

MEMORY_WARNS, BYTES_WARN, SECONDS_WARN = 1e9, 1e9, 3600.0
SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(bit|B)/s")
DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")
UNIT_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

NumbersByParty = dict[str, int]


@cli.command("estimate")
@click.argument("file", type=FILE)
@click.option("--data", multiple=True, metavar="PARTY=FILE",
              help="Tables of all parties, or of none.")  # fmt: skip
@click.option("--rows", metavar="N|PARTY=N,…", help="Rows of every table, or of each.")
@click.option("--columns", metavar="PARTY=N,…", help="Columns of each, without id and label.")
@click.option("--link", metavar="SPEED,DELAY",
              help="Parties on machines of their own, with such links: 100MB/s,20ms.")  # fmt: skip
@click.option("--cores", type=click.IntRange(1, 4096), help="Of a machine.  [default: this one's]")
@JSON
def estimate_command(file: Path, *, as_json: bool, **given: Any) -> int:
    """Estimate time, memory and traffic of the job in FILE.

    \b
      fedboost estimate job.yaml --data bank=bank.parquet --data telco=telco.parquet
      fedboost estimate job.yaml --rows 100000 --columns bank=10,telco=13 --link 100MB/s,20ms

    The job's cipher is measured for some seconds first. The time may be half or twice as long.
    Without --link all parties are daemons on this machine and share its cores.
    """
    setting = _read_setting(file, given)
    place = _parse_placement(given["link"], given["cores"])
    with plain_console(stderr=True).status("rehearsing …") as status:

        def show_cipher(cipher: str) -> None:
            status.update(f"measuring {cipher} …")

        forecast = estimate(setting, place, partial(prices.prices_of, say=show_cipher))
    warnings = list(_warnings(forecast))
    if as_json:
        click.echo(json.dumps({**forecast.said(), "warnings": warnings}))
        return 0
    _print_estimate(forecast, place, warnings)
    return 0


def _read_setting(file: Path, given: Mapping[str, Any]) -> Setting:
    raw = read_yaml(file)
    where = {"file": str(file)}
    if given["data"]:
        if given["rows"] or given["columns"]:
            raise ConfigError(
                "--data already gives rows and columns", todo="leave --rows and --columns out"
            )
        sources = read_sources(given["data"])
        spec = complete_spec(raw, sources, **where).split_by_guest()[0]
        return from_tables(spec, sources)
    spec = _spec_with_placeholders(raw, where).split_by_guest()[
        0
    ]  # of several guests the first, like the others
    everybody = spec.parties.parties_with_data
    rows = _parse_numbers(given["rows"], everybody, "--rows")
    return from_words(spec, StatedSizes(rows, _parse_numbers(given["columns"], (), "--columns")))


def _spec_with_placeholders(raw: object, where: dict[str, str]) -> JobSpec:
    """Return the job, with a data set for each party that the file does not name one for."""
    if isinstance(raw, dict) and isinstance(raw.get("parties"), dict):
        parties = raw["parties"]
        names = [
            parties.get("guest"),
            *(parties.get("guests") or []),
            *(parties.get("hosts") or []),
        ]
        stated = raw.get("data") if isinstance(raw.get("data"), dict) else {}
        data = {name: {"dataset": DATASET} for name in names if isinstance(name, str)}
        raw = {**raw, "data": {**data, **(stated or {})}}
    spec = parse_settings(JobSpec, raw, **where)
    check_spec(spec, **where)
    return spec


def _parse_numbers(text: str | None, everybody: tuple[str, ...], option: str) -> NumbersByParty:
    """Read ``N`` for all parties, or ``PARTY=N,…``; raise ConfigError for other text."""
    if text is None:
        return {}
    by_party: NumbersByParty = {}
    for part in text.split(","):
        party, equals, count = part.strip().rpartition("=")
        if not count.isdigit() or int(count) < 1 or (not equals and not everybody):
            raise ConfigError(f"{option} {text} is not PARTY=N", todo=f"{option} bank=1000,telco=…")
        by_party |= {party: int(count)} if equals else dict.fromkeys(everybody, int(count))
    return by_party


def _parse_placement(link: str | None, cores: int | None) -> Placement:
    cores_here = cores or len(os.sched_getaffinity(0))
    if link is None:
        return Placement(cores_here)
    speed, _, delay = link.partition(",")
    fast, late = SPEED.fullmatch(speed.strip()), DELAY.fullmatch(delay.strip() or "0ms")
    if fast is None or late is None:
        raise ConfigError(f"--link {link} is not a speed and a delay", todo="--link 100MB/s,20ms")
    each = float(fast[1]) * UNIT_FACTORS[fast[2]] / (8.0 if fast[3] == "bit" else 1.0)
    seconds = float(late[1]) * (1e-3 if late[2] == "ms" else 1.0)
    return Placement(cores_here, apart=True, bytes_per_s=each, latency_s=seconds)


def _warnings(forecast: Estimate) -> Iterator[str]:
    memory = machine_bytes()
    for party, n_bytes in forecast.memory_peak_bytes.items():
        if n_bytes > MEMORY_WARNS:
            than = ", more than this machine has" if n_bytes > memory else ""
            who = forecast.encryption.get("scheme") or forecast.protocol
            yield f"{who} needs {units.in_bytes(n_bytes)} of memory at {party}{than}"
    for link, n_bytes in forecast.bytes.items():
        if n_bytes > BYTES_WARN:
            yield f"{units.in_bytes(n_bytes)} go from {link.replace('->', ' to ')}"
    if forecast.seconds["total"] > SECONDS_WARN:
        yield f"the job takes {units.in_seconds(forecast.seconds['total'])}"


def _print_estimate(forecast: Estimate, place: Placement, warnings: list[str]) -> None:
    console = plain_console()
    where = "each party on a machine like this one" if place.apart else "all on this machine"
    name = Text(forecast.name, style="bold")
    console.print(name, f"({forecast.protocol}), {where}, {place.cores} cores")
    rows = ", ".join(f"{units.in_count(count)} {name}" for name, count in forecast.rows.items())
    console.print(f"rows: {rows}")
    if forecast.encryption:
        console.print("encryption: {scheme}: {because}".format_map(forecast.encryption))
    if forecast.answers:
        console.print(f"hosts' encrypted sums: {forecast.answers}")
    total, least, most = map(units.in_seconds, forecast.seconds.values())
    console.print(f"time: about {total}, between {least} and {most}")
    parties = Table("party")
    everybody = forecast.memory_peak_bytes
    for head in ("memory", "disk", *(f"sends to {party}" for party in everybody)):
        parties.add_column(head, justify="right")
    for party in everybody:
        sent = [forecast.bytes.get(f"{party}->{other}", 0.0) for other in everybody]
        shown = [units.in_bytes(n_bytes) if n_bytes else units.NOTHING for n_bytes in sent]
        memory, disk = (
            units.in_bytes(n_bytes) if n_bytes else units.NOTHING
            for n_bytes in (
                forecast.memory_peak_bytes[party],
                forecast.disk_peak_bytes.get(party, 0),
            )
        )
        parties.add_row(party, memory, disk, *shown)
    console.print(parties)
    for warning in forecast.assumed:
        console.print(f"assumed: {warning}", style="dim")
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow")


@cli.command("warm")
@JSON
def warm(as_json: bool) -> None:
    """Pre-compile the numeric kernels, so that the first job starts at once.

    \b
      fedboost warm
      NUMBA_CACHE_DIR=/srv/fedboost/kernels fedboost warm

    It runs a small job of each kind and keeps the machine code with the installation, shared by all
    its users, or else in the user's own cache. Run it again after an update or on another kind of
    processor; existing code is not compiled again.
    """
    from fedboost.ground import kernel_files, kernel_folders
    from fedboost.runtime.cluster import warming

    logging.disable(logging.WARNING)  # warnings about made-up tables
    folder = kernel_files.writable_folder()
    if folder is None:
        tried = ", ".join(str(place) for place in kernel_folders.kernel_folders())
        raise ConfigError(
            "no folder for compiled kernels is writable by us alone",
            todo=f"name your own folder: {kernel_folders.CACHE_VARIABLE}=DIR fedboost warm",
            tried=tried,
        )
    console = plain_console(stderr=True)
    with console.status("compiling") as status:

        def show_job(number: int, job: str) -> None:
            words = f"job {number} of {len(warming.JOBS)}: {job}"
            if console.is_terminal:
                status.update(f"compiling, {words}")
            else:
                click.echo(words, err=True)

        done = warming.warm_kernels(show_job)
    if as_json:
        counts = {"compiled": len(done.compiled), "read": done.read, "seconds": done.seconds}
        click.echo(json.dumps({**counts, "folder": str(folder), "cold": done.cold}))
        return
    click.echo(f"compiled {len(done.compiled)} kernels, {done.read} were there already")
    click.echo(f"stored in {folder} in {done.seconds:.0f} s")
