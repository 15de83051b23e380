"""The command line's tree: every group, and of each command its name, module and first sentence.

Nothing is imported to print a help; a command's module comes when the command is used.
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

from fedboost import __version__
from fedboost.runtime.process import logs

Table = Mapping[str, tuple[str, str]]  # by command: its module in `fedboost.cli`, what it does


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Modules stay: nothing is looked for among them, which takes a tenth of their import."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


class LazyGroup(click.Group):
    """A group whose commands are imported when somebody uses them.

    A module adds its commands to the group when it is imported; the table says which module.
    """

    def __init__(self, *args: Any, table: Table, **more: Any) -> None:
        super().__init__(*args, **more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name."""
        return sorted({*self.table, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for an unknown name."""
        if cmd_name not in self.commands and cmd_name in self.table:
            with _no_garbage():
                importlib.import_module(f"fedboost.cli.{self.table[cmd_name][0]}")
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a UsageError for an unknown name has those that may be meant."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        meant = " or ".join(map(repr, self._meant(ctx, name)))
        remedy = f"Did you mean {meant}?" if meant else f"See {ctx.command_path} --help."
        raise click.UsageError(f"No such command {name!r}. {remedy}", ctx)

    def _meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return near names of this group, otherwise that name's places in the whole tree."""
        near = difflib.get_close_matches(name, self.list_commands(ctx))
        groups = {
            path: group for path, group in cli.commands.items() if isinstance(group, LazyGroup)
        }
        other = [f"fedboost {path} {name}" for path, group in groups.items() if name in group.table]
        top = [f"fedboost {name}"] if name in cli.list_commands(ctx) else []
        return near or top + other

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each command's first sentence, as the table has it."""
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names))
        commands = [click.Command(name, help=self._sentence(name)) for name in names]
        rows = [(command.name or "", command.get_short_help_str(room)) for command in commands]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin with what is typed."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        completions = [CompletionItem(name, help=self._sentence(name)) for name in names]
        return [*completions, *click.Command.shell_complete(self, ctx, incomplete)]

    def _sentence(self, name: str) -> str:
        if name in self.table:
            return self.table[name][1]
        return self.commands[name].help or ""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    table={
        "backup": ("backup", "Write a daemon's store into one file; the daemon may run."),
        "completion": ("complete", "Print what makes a shell complete commands, options, files and "
                       "ids."),
        "demo": ("demo", "Train on scikit-learn's breast cancer table, split over three daemons, "
                 "beside XGBoost."),
        "doctor": ("daemons", "Check certificates, disk, tables, clocks, versions, every link "
                   "both ways; name what fails."),
        "estimate": ("estimate", "Say what memory and bytes the job in FILE will take, and about "
                     "how long."),
        "restore": ("backup", "Put the store of a backup into the empty folder that the settings "
                    "name, every file checked."),
        "schema": ("schema", "Print the JSON Schema of a settings or job file, for editors."),
        "simulate": ("cluster", "Run the job in FILE with all parties in this process."),
        "warm": ("estimate", "Compile what jobs compute with, once for this machine, so that no "
                 "job has to."),
    },
)  # fmt: skip
@click.version_option(__version__, prog_name="fedboost")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
@click.option("--log-format", type=click.Choice(get_args(logs.LogFormat)), envvar="FEDBOOST_LOGS",
              show_envvar=True, help="How log lines on stderr look; a daemon's settings file says "
              "it as `logs:`.  [default: text]")  # fmt: skip
def cli(verbose: bool, log_format: logs.LogFormat | None) -> None:
    """Gradient boosting across organisations that may not pool their tables.

    \b
      fedboost demo
      fedboost cluster run job.yaml --data bank=bank.parquet --data telco=telco.parquet
      fedboost job submit job.yaml --watch --coordinator 127.0.0.1:7100 --tls certs

    Errors are three lines on stderr: what, where, and what to do. Exit codes: 0 done, 1 the job
    failed, 2 the command line, a file or the job is wrong, 3 somebody is not there, 4 refused by a
    policy, 130 interrupted.
    """
    if not logging.getLogger().handlers:  # whoever calls us from a program logs as it likes
        logs.set_up(log_format or "text", logging.DEBUG if verbose else logging.INFO)


class AuditGroup(LazyGroup):
    """The audits; without the name of one, it is the attack, as before there were others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `attack` in front of a job's id, and of options that are no group's."""
        first = args[0] if args else ""
        is_option = first.startswith("-") and first not in ctx.help_option_names
        if is_option or _JOB_ID.search(first):
            args = ["attack", *args]
        return super().parse_args(ctx, args)


_JOB_ID = re.compile("-[0-9a-f]{8}$")


@cli.group("audit", cls=AuditGroup, table={
    "attack": ("audit", "Show what the other parties of JOB could have learnt from this one."),
    "forget": ("replaying", "Destroy what this party kept of JOB for a replay: its secret, and "
               "what it received."),
    "replay": ("replaying", "Show that this party, the guest of JOB, sent what honest training "
               "sends, and nothing else."),
    "verify": ("replaying", "Check the signed FILE of a guest's replay, and hold it to what this "
               "party got and sent."),
})  # fmt: skip
def audit_group() -> None:
    """Attack a job's own record, or replay the guest of one; the daemon may run.

    `fedboost audit JOB` is `fedboost audit attack JOB`.
    """


@cli.group("certs", cls=LazyGroup, table={
    "create": ("certs", "Make the CA and certificates that are missing; nothing is overwritten."),
    "renew-ca": ("certs", "Make a new CA; until `retire-ca` certificates of both count."),
    "request": ("certs", "Write NAME.csr for a CA that is not ours; NAME.key is made where there "
                "is none."),
    "retire-ca": ("certs", "End what `renew-ca` has begun: only the new CA counts from here on."),
    "revoke": ("certs", "Revoke every certificate of NAME; give ca.crl to all daemons, beside "
               "their ca.pem."),
    "rotate": ("certs", "Give NAME a new key and certificate; running daemons take them up by "
               "themselves."),
    "show": ("certs", "List the certificates in use and those that were revoked."),
})  # fmt: skip
def certs_group() -> None:
    """Make, replace, revoke and show certificates of a development CA."""


@cli.group("cluster", cls=LazyGroup, table={
    "run": ("cluster", "Start a coordinator and every party of the job in FILE, run it, stop "
            "everything."),
})  # fmt: skip
def cluster_group() -> None:
    """A whole local cluster of real daemons."""


@cli.group("coordinator", cls=LazyGroup, table={
    "page": ("daemons", "Print the link that signs you in to the coordinator's page, token "
             "included."),
    "serve": ("daemons", "Run the coordinator's daemon until it is told to stop."),
})  # fmt: skip
def coordinator_group() -> None:
    """Serve a coordinator."""


@cli.group("data", cls=LazyGroup, table={
    "check": ("data", "Describe each FILE, a table or the declaration of one, and what a job "
              "would refuse about it."),
    "split": ("data", "Deal the table POOLED out to parties: one DIR/PARTY.parquet each, with `id` "
              "everywhere."),
})  # fmt: skip
def data_group() -> None:
    """Check tables, or split a pooled one into parties' tables."""


@cli.group("job", cls=LazyGroup, table={
    "cancel": ("job", "End a job for good, on every party."),
    "delete": ("job", "Have the coordinator forget jobs that are over, with their journals."),
    "list": ("job", "Every job of the coordinator."),
    "report": ("submit", "Write the job's report: one HTML file without anything outside it."),
    "resume": ("submit", "Carry a paused or failed job on from the last round that all parties "
               "have kept."),
    "status": ("job", "Show a job's state, and who is waited for, at what, since when."),
    "submit": ("submit", "Hand in the job in FILE; prints its id, or with --watch its result."),
    "sweep": ("sweep", "Try settings and folds of the job in FILE, whose section `sweep` says "
              "which."),
    "watch": ("submit", "Show a job's progress until it is done."),
})  # fmt: skip
def job_group() -> None:
    """Submit, watch, cancel, resume and delete jobs at a coordinator.

    Where it is and who we are say --coordinator and --tls, or FEDBOOST_COORDINATOR and
    FEDBOOST_TLS, or ~/.config/fedboost/client.yaml.
    """


@cli.group("ledger", cls=LazyGroup, table={
    "diff": ("compare", "Compare our rows of a job with a peer's, payload for payload; exit code 1 "
             "if they differ."),
    "export": ("compare", "Write a job's rows into a signed file, with which a peer can compare "
               "its own."),
    "restored": ("compare", "Show rows that this party has signed and its ledger lacks, since its "
                 "store was restored."),
    "show": ("ledger", "List every payload that left or came: to whom, how much, how protected, "
             "what it tells."),
    "verify": ("compare", "Check every row's hash, the chain and the signed heads; the first that "
               "is broken is named."),
})  # fmt: skip
def ledger_group() -> None:
    """Show, verify and compare the party's disclosure ledger; works while the daemon runs."""


@cli.group("model", cls=LazyGroup, table={
    "delete": ("model", "Delete a model's shards here, and what its job disclosed; other parties "
               "keep theirs."),
    "explain": ("explaining", "Say what each column adds to each row's margin (TreeSHAP, computed "
                "by XGBoost)."),
    "export": ("exporting", "Write a model to a file."),
    "fetch": ("exporting", "Take the party's own shard of a model along, from its running daemon."),
    "list": ("model", "Every model of which a shard lies here."),
    "picture": ("explaining", "Draw one tree of a model, as one party knows it."),
    "predict": ("model", "Score rows with a model: the guest's table decides which, the hosts add "
                "what they know."),
    "release": ("exporting", "Consent to a merged model: write this party's splits, signed, for "
                "the model's guest."),
    "rules": ("model", "The split rules that most trees of a model share."),
    "show": ("model", "Facts, importance and the first trees of a model, as one party knows it."),
})  # fmt: skip
def model_group() -> None:
    """List, show, use, export and delete models."""


@cli.group("party", cls=LazyGroup, table={
    "account": ("owner", "Show what jobs have released of each data set, by job and guest; the "
                "daemon may run."),
    "approve": ("owner", "Let a job run that waits for a person's approval; shows what it wants, "
                "and asks."),
    "deny": ("owner", "Refuse a job, for good."),
    "forget": ("owner", "Delete what this party keeps of a job that is over."),
    "jobs": ("owner", "Every job that this party has seen, and which of them wait for approval."),
    "move": ("backup", "Write a stopped daemon's store for another machine, and close the store "
             "here."),
    "page": ("daemons", "Print the link that signs you in to the party's page, token included."),
    "reload": ("owner", "Have the daemon take up what has changed in its settings file."),
    "serve": ("daemons", "Run the party's daemon until it is told to stop."),
})  # fmt: skip
def party_group() -> None:
    """Serve a party; look at, approve, deny and forget the jobs that want its data."""
