"""Every command explains itself: what it does, an example that is one, what each option means."""

import inspect
import re
import subprocess

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from fedboost.cli import complete
from fedboost.cli.groups import cli
from fedboost.messages.job_pb2 import JobStatus
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Leaf, Term
from tests.support.shown_commands import check, commands

EXAMPLE = re.compile(r"^ {2,}fedboost ", re.MULTILINE)


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()):
    """Every command that is no group, by its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if not found.hidden:
            yield from leaves(found, (*path, name))


LEAVES = {" ".join(path): command for path, command in leaves()}


def examples(command):
    """The example lines of a command's help, as blocks of a document are read."""
    blocks = inspect.cleandoc(command.help or "").split("\n\n")
    shown = [block for block in blocks if block.startswith("\b")]
    text = "\n".join(line.strip() for block in shown for line in block.splitlines()[1:])
    return commands(f"```sh\n{text}\n```\n", "fedboost")


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_says_in_one_sentence_what_it_does(name):
    first = (LEAVES[name].help or "").strip().split("\n\n")[0]
    assert first[:1].isupper()
    assert first.endswith((".", ";", "help")), first
    assert LEAVES[name].get_short_help_str(200)


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_shows_an_example_of_itself_and_every_example_is_a_command(name):
    found = examples(LEAVES[name])
    own = name.split()
    assert any(args[: len(own)] == own for args in found), (
        f"add lines `fedboost {name} …` behind a \\\\b to the docstring of the command"
    )
    for args in found:
        check(args)


GROUPS = sorted({name.rpartition(" ")[0] for name in LEAVES})


@pytest.mark.parametrize("group", GROUPS)
def test_a_mistyped_command_is_answered_with_the_one_that_is_meant(group):
    for name in (name for name in LEAVES if name.rpartition(" ")[0] == group):
        own = name.split()[-1]
        shown = CliRunner().invoke(cli, [*group.split(), own[:-2] + own[-1] + own[-2] + own[-1]])
        assert shown.exit_code == 2
        assert f"Did you mean '{own}'" in shown.output, shown.output


@pytest.mark.parametrize("name", LEAVES)
def test_a_mistyped_option_is_answered_with_the_one_that_is_meant(name):
    for option in (one for one in LEAVES[name].params if isinstance(one, click.Option)):
        shown = CliRunner().invoke(cli, [*name.split(), f"{option.opts[-1]}x"])
        assert f"'{option.opts[-1]}'" in shown.output, shown.output


def test_a_command_of_another_group_is_named_with_its_group():
    for typed, meant in (
        (["run"], "'fedboost cluster run'"),
        (["job", "predict"], "'fedboost model predict'"),
        (["cluster", "simulate"], "'fedboost simulate'"),
    ):
        shown = CliRunner().invoke(cli, typed)
        assert shown.exit_code == 2
        assert meant in shown.output, shown.output
    assert (
        "See fedboost job --help."
        in CliRunner().invoke(cli, ["job", "qqqq"], prog_name="fedboost").output
    )


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_says_what_it_is_for(name):
    for option in LEAVES[name].params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"{option.name} of fedboost {name}"


@pytest.mark.parametrize("name", LEAVES)
def test_help_fits_a_terminal(name):
    shown = CliRunner().invoke(cli, [*name.split(), "--help"], terminal_width=80)
    assert shown.exit_code == 0
    plain = [line for line in shown.output.splitlines() if not EXAMPLE.match(line)]
    assert all(len(line) <= 100 for line in plain), [x for x in plain if len(x) > 100]


@pytest.mark.parametrize("shell", complete.SHELLS)
def test_each_shell_gets_a_script_of_its_own(shell):
    said = CliRunner().invoke(cli, ["completion", shell])
    assert said.exit_code == 0, said.output
    assert f"{complete.COMPLETION_VARIABLE}={shell}_complete" in said.output


def test_bash_reads_its_script():
    said = CliRunner().invoke(cli, ["completion", "bash"])
    subprocess.run(["bash", "-n"], input=said.output, text=True, check=True)


def completed(args, typed=""):
    found = ShellComplete(cli, {}, "fedboost", complete.COMPLETION_VARIABLE).get_completions(
        args, typed
    )
    return [one.value for one in found]


def test_commands_and_options_are_completed():
    assert "completion" in completed([], "com")
    assert completed(["job"], "del") == ["delete"]
    assert "--superseded" in completed(["certs", "revoke"], "--")


def test_names_of_certificates_are_completed(tmp_path):
    from datetime import UTC, datetime

    names = [Leaf("party", "bank"), Leaf("party", "telco")]
    authority.create_certificates(tmp_path, names, Term(datetime.now(UTC)))
    assert completed(["certs", "rotate", "--out", str(tmp_path)], "b") == ["bank"]
    assert completed(["certs", "rotate", "--out", str(tmp_path / "none")]) == []


def test_jobs_of_a_partys_store_are_completed_beside_its_daemon(tmp_path):
    config = tmp_path / "party.yaml"
    config.write_text(
        "name: bank\nlisten: 127.0.0.1:7101\ninsecure_loopback: true\n"
        f"coordinator: {{name: coord, address: '127.0.0.1:7100'}}\nstore: {tmp_path / 'var'}\n"
    )
    args = ["party", "forget", "--config", str(config)]
    assert completed(args) == []
    with Store(tmp_path / "var", "party bank") as store:
        store.add_job("credit-1", "credit", b"{}", JobState.WAITING)
        store.add_job("fraud-1", "fraud", b"{}", JobState.WAITING)
        assert completed(args, "cr") == ["credit-1"]


def test_jobs_of_the_coordinator_are_completed_and_none_where_nobody_answers(monkeypatch):
    async def jobs(_):
        return [JobStatus(id="credit-1"), JobStatus(id="fraud-1")]

    given = ["job", "watch", "--coordinator", "127.0.0.1:9"]
    monkeypatch.setenv("FEDBOOST_TLS", "")
    assert completed(given) == []
    monkeypatch.setattr(CoordinatorClient, "jobs", jobs)
    monkeypatch.setattr("fedboost.runtime.client.config.client_config", lambda *_: _client())
    assert completed(given, "f") == ["fraud-1"]


def _client():
    from fedboost.runtime.client.config import ClientConfig
    from fedboost.runtime.transport.addresses import Remote

    remote = Remote(name="coord", address="127.0.0.1:9")
    return ClientConfig(coordinator=remote, insecure_loopback=True)
