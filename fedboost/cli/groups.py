"""The command line's tree: every group, and the name, module and first sentence of each command.

Printing a help imports no command; a command's module is imported when it is used.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from fedboost.ground.formats import WIRE_VERSION
from fedboost.runtime.process import logs

CommandTable = Mapping[str, tuple[str, str]]  # by command: module in `fedboost.cli`, first sentence


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause garbage collection during an import; collecting takes a tenth of its time and frees
    nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


class LazyGroup(click.Group):
    """A group that imports a command when it is used.

    A module adds its commands to the group when it is imported; the table says which module.
    """

    def __init__(self, *args: Any, table: CommandTable, **more: Any) -> None:
        super().__init__(*args, **more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command's name."""
        return sorted({*self.table, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None for an unknown name."""
        if cmd_name not in self.commands and cmd_name in self.table:
            with _no_garbage():
                importlib.import_module(f"fedboost.cli.{self.table[cmd_name][0]}")
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name raise a UsageError that suggests similar ones."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        meant = " or ".join(map(repr, self._similar_commands(ctx, name)))
        remedy = f"Did you mean {meant}?" if meant else f"See {ctx.command_path} --help."
        raise click.UsageError(f"No such command {name!r}. {remedy}", ctx)

    def _similar_commands(self, ctx: click.Context, name: str) -> list[str]:
        """Return near names of this group, otherwise that name's places in the whole tree."""
        near = difflib.get_close_matches(name, self.list_commands(ctx))
        groups = {
            path: group for path, group in cli.commands.items() if isinstance(group, LazyGroup)
        }
        other = [f"fedboost {path} {name}" for path, group in groups.items() if name in group.table]
        top = [f"fedboost {name}"] if name in cli.list_commands(ctx) else []
        return near or top + other

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command's first sentence from the table."""
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names))
        commands = [click.Command(name, help=self._first_sentence(name)) for name in names]
        rows = [(command.name or "", command.get_short_help_str(room)) for command in commands]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with the typed text."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        completions = [CompletionItem(name, help=self._first_sentence(name)) for name in names]
        return [*completions, *click.Command.shell_complete(self, ctx, incomplete)]

    def _first_sentence(self, name: str) -> str:
        if name in self.table:
            return self.table[name][1]
        return self.commands[name].help or ""


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version of this build and its number of the wire, and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    from fedboost.ground.build_version import build_version

    click.echo(f"fedboost, version {build_version()} (wire {WIRE_VERSION})")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    table={
        "backup": ("backup", "Write a daemon's store into one file; the daemon may run."),
        "completion": ("complete", "Print a script that completes commands, options, files and "
                                   "ids in a shell."),
        "demo": ("demo", "Train on scikit-learn's breast cancer table, split over three daemons, "
                 "beside XGBoost."),
        "doctor": ("daemons", "Check certificates, disk, tables, clocks, versions and every link "
                              "both ways; list failures."),
        "estimate": ("estimate", "Estimate time, memory and traffic of the job in FILE."),
        "health": ("health", "Check within 5 seconds that this machine's daemon serves."),
        "restore": ("backup", "Put the store of a backup into the empty folder that the settings "
                    "name, every file checked."),
        "schema": ("schema", "Print the JSON Schema of a settings or job file, for editors."),
        "simulate": ("cluster", "Run the job in FILE with all parties in this process."),
        "warm": ("estimate", "Pre-compile the numeric kernels, so that the first job starts at "
                             "once."),
    },
)  # fmt: skip
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
@click.option("--log-format", type=click.Choice(get_args(logs.LogFormat)), envvar="FEDBOOST_LOGS",
              show_envvar=True, help="Format of log lines on stderr; a daemon's settings file "
                                     "sets it as `logs:`.  [default: text]")  # fmt: skip
def cli(verbose: bool, log_format: logs.LogFormat | None) -> None:
    """Gradient boosting across organisations that may not pool their tables.

    \b
      fedboost demo
      fedboost cluster run job.yaml --data bank=bank.parquet --data telco=telco.parquet
      fedboost job submit job.yaml --watch --coordinator 127.0.0.1:7100 --tls certs

    Errors are three lines on stderr: what, where, and what to do. Exit codes: 0 done, 1 the job
    failed, 2 the command line, a file or the job is wrong, 3 a party or the coordinator is
    unreachable, 4 refused by a policy, 130 interrupted.
    """
    if not logging.getLogger().handlers:  # a calling program sets up its own logging
        logs.set_up_logging(log_format or "text", logging.DEBUG if verbose else logging.INFO)


class AuditGroup(LazyGroup):
    """The audits; without a subcommand, the attack."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `attack` in front of a job's id, and of options that are no group's."""
        first = args[0] if args else ""
        is_option = first.startswith("-") and first not in ctx.help_option_names
        if is_option or _JOB_ID.search(first):
            args = ["attack", *args]
        return super().parse_args(ctx, args)


_JOB_ID = re.compile("-[0-9a-f]{8}$")


@cli.group("audit", cls=AuditGroup, table={
    "attack": ("audit", "Show what the other parties of JOB could have learnt from this party."),
    "forget": ("replaying", "Destroy this party's replay data of JOB: its secret, and the "
                            "received messages."),
    "replay": ("replaying", "Show that this party, the guest of JOB, sent exactly the payloads "
                            "of honest training."),
    "verify": ("replaying", "Check the signed FILE of a guest's replay against this party's "
                            "ledger."),
})  # fmt: skip
def audit_group() -> None:
    """Attack a job's own record, or replay the guest of one; the daemon may run.

    `fedboost audit JOB` is `fedboost audit attack JOB`.
    """


@cli.group("certs", cls=LazyGroup, table={
    "create": ("certs", "Make the missing certificates, and the CA if there is none; nothing "
                        "is overwritten."),
    "renew-ca": ("certs", "Make a new CA; until `retire-ca`, certificates of both CAs are valid."),
    "request": ("certs", "Write NAME.csr for another CA; make NAME.key if it is missing."),
    "retire-ca": ("certs", "Finish `renew-ca`: only the new CA is valid from here on."),
    "revoke": ("certs", "Revoke every certificate of NAME; give ca.crl to all daemons, beside "
               "their ca.pem."),
    "rotate": ("certs", "Give NAME a new key and certificate; running daemons take them up by "
               "themselves."),
    "show": ("certs", "List the certificates in use and the revoked ones."),
})  # fmt: skip
def certs_group() -> None:
    """Make, replace, revoke and show certificates of a development CA."""


@cli.group("cluster", cls=LazyGroup, table={
    "run": ("cluster", "Start a coordinator and every party of the job in FILE, run it, stop "
            "everything."),
})  # fmt: skip
def cluster_group() -> None:
    """Run a whole local cluster of real daemons."""


@cli.group("coordinator", cls=LazyGroup, table={
    "page": ("daemons", "Print the link that signs you in to the coordinator's page, token "
             "included."),
    "serve": ("daemons", "Run the coordinator's daemon until it receives a stop signal."),
})  # fmt: skip
def coordinator_group() -> None:
    """Serve a coordinator."""


@cli.group("data", cls=LazyGroup, table={
    "check": ("data", "Describe each FILE, a table or its declaration, and list problems that "
                      "a job would refuse."),
    "split": ("data", "Deal the table POOLED out to parties: one DIR/PARTY.parquet each, with `id` "
              "everywhere."),
})  # fmt: skip
def data_group() -> None:
    """Check tables, or split a pooled one into parties' tables."""


@cli.group("job", cls=LazyGroup, table={
    "cancel": ("job", "End a job for good, on every party."),
    "delete": ("job", "Delete ended jobs and their journals at the coordinator."),
    "list": ("job", "List every job of the coordinator."),
    "report": ("submit", "Write the job's report: one HTML file without anything outside it."),
    "resume": ("submit", "Carry a paused or failed job on from the last round that all parties "
               "have kept."),
    "status": ("job", "Show a job's state, and the parties and steps that it waits for, with "
                      "times."),
    "submit": ("submit", "Submit the job in FILE; prints its id, or with --watch its result."),
    "sweep": ("sweep", "Try the settings and folds in the section `sweep` of the job in FILE."),
    "watch": ("submit", "Show a job's progress until it is done."),
})  # fmt: skip
def job_group() -> None:
    """Submit, watch, cancel, resume and delete jobs at a coordinator.

    The address and the user come from --coordinator and --tls, from FEDBOOST_COORDINATOR and
    FEDBOOST_TLS, or from ~/.config/fedboost/client.yaml.
    """


@cli.group("ledger", cls=LazyGroup, table={
    "diff": ("compare", "Compare our rows of a job with a peer's, payload for payload; exit code 1 "
             "if they differ."),
    "export": ("compare", "Write a job's rows into a signed file that a peer can compare with "
                          "its own."),
    "restored": ("compare", "Show rows that this party has signed but its restored ledger lacks."),
    "show": ("ledger", "List every payload that this party sent or received, with size, "
                       "protection and content."),
    "verify": ("compare", "Check every row's hash, the chain and the signed heads; the first that "
               "is broken is named."),
})  # fmt: skip
def ledger_group() -> None:
    """Show, verify and compare the party's disclosure ledger; works while the daemon runs."""


@cli.group("model", cls=LazyGroup, table={
    "delete": ("model", "Delete a model's shards here, and its job's disclosure; other parties "
               "keep theirs."),
    "explain": ("explaining", "Compute each column's contribution to each row's margin "
                              "(TreeSHAP, by XGBoost)."),
    "export": ("exporting", "Write a model to a file."),
    "fetch": ("exporting", "Copy the party's own shard of a model from its running daemon."),
    "list": ("model", "List every model with a shard here."),
    "picture": ("explaining", "Draw one tree of a model, as one party knows it."),
    "predict": ("model", "Score rows with a model: the guest's table selects the rows, the "
                         "hosts contribute their columns."),
    "release": ("exporting", "Consent to a merged model: write this party's splits, signed, for "
                "the model's guest."),
    "rules": ("model", "Show the split rules that most trees of a model share."),
    "show": ("model", "Show facts, importance and the first trees of a model, as one party "
                      "knows it."),
})  # fmt: skip
def model_group() -> None:
    """List, show, use, export and delete models."""


@cli.group("party", cls=LazyGroup, table={
    "account": ("owner", "Show the releases of each data set, by job and guest; the daemon may "
                         "run."),
    "approve": ("owner", "Approve a job that waits for a person's approval; shows its request, "
                         "and asks."),
    "deny": ("owner", "Refuse a job, for good."),
    "forget": ("owner", "Delete this party's data of a job that has ended."),
    "jobs": ("owner", "List every job that this party has seen, with those that wait for "
                      "approval."),
    "move": ("backup", "Write a stopped daemon's store for another machine, and close the store "
             "here."),
    "page": ("daemons", "Print the link that signs you in to the party's page, token included."),
    "reload": ("owner", "Make the daemon reload its settings file."),
    "serve": ("daemons", "Run the party's daemon until it receives a stop signal."),
})  # fmt: skip
def party_group() -> None:
    """Serve a party; look at, approve, deny and forget the jobs that want its data."""


@cli.group("relay", cls=LazyGroup, table={
    "serve": ("relay", "Run a relay, which joins daemons that only dial out, until it receives a "
              "stop signal."),
})  # fmt: skip
def relay_group() -> None:
    """Serve a relay for daemons that only dial out."""
