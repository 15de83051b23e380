"""The program as processes of its own, started as users start it: no fork of a warm Python here."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedboost.ground.build_version import build_version
from fedboost.ground.formats import WIRE_VERSION
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.e2e.conftest import MALLORY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]
INSTALLED = (str(Path(sys.executable).with_name("fedboost")),)
MODULE = (sys.executable, "-m", "fedboost")
ENDS_S = 60.0


def variables(**more):
    """Variables of a user who has none for fedboost."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FEDBOOST_")}
    return {**clean, "PYTHONPATH": str(world.ROOT), "COLUMNS": "300", **more}


def said(*args, how=MODULE, **env):
    """What a command says and how it ends; nobody types anything into it."""
    done = subprocess.run(
        [*how, *map(str, args)], env=variables(**env), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=ENDS_S, check=False,
    )  # fmt: skip
    return world.Said(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("how", [INSTALLED, MODULE], ids=["installed", "module"])
def test_the_program_starts_by_its_name_and_as_a_module(how):
    assert said("--version", how=how) == world.Said(
        0, f"fedboost, version {build_version()} (wire {WIRE_VERSION})\n", ""
    )


def test_exit_codes_tell_what_went_wrong(town, tmp_path):
    env = world.client_env(town)
    nobody = {**env, "FEDBOOST_COORDINATOR": f"{COORDINATOR}@127.0.0.1:9"}
    for code, args, variables in (
        (0, ("job", "list"), env),
        (1, ("job", "status", "nothing"), env),
        (2, ("job", "submit", tmp_path / "none.yaml"), env),
        (2, ("no-such-command",), env),
        (3, ("job", "list"), nobody),
        (4, ("job", "list"), {**env, "FEDBOOST_USER": MALLORY}),
    ):
        found = said(*args, **variables)
        assert found.code == code, found.err
        assert "Traceback" not in found.err
        assert (found.err == "") == (code == 0)


def test_a_command_in_a_pipe_writes_neither_colours_nor_cursor_moves(town, tmp_path):
    file = world.job_file(tmp_path, world.echo(rounds=2))
    found = said("job", "submit", file, "--watch", **world.client_env(town))
    assert found.code == 0, found.err
    assert "\x1b" not in found.out + found.err
    assert "\r" not in found.out + found.err


def test_a_reader_who_leaves_gets_no_traceback(town):
    command = " ".join((*MODULE, "--help"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -c 1"], env=variables(),
        capture_output=True, text=True, timeout=ENDS_S, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("U", "")


def test_ctrl_c_ends_a_command_that_waits_and_not_the_job(town):
    id_ = world.submit(town, world.echo(rounds=1000, parts=4, numbers=100))
    with subprocess.Popen(
        [*MODULE, "job", "watch", id_], env=variables(**world.client_env(town)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as watching:  # fmt: skip
        assert watching.stdout is not None
        shown = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        shown += watching.stdout.read()
        assert watching.wait(ENDS_S) == 130
    assert [line for line in shown.splitlines() if line][-4:] == [
        f"{id_} keeps running",
        f"to follow it: fedboost job watch {id_}",
        f"to end it: fedboost job cancel {id_}",
        "interrupted",
    ]
    assert "Traceback" not in shown
    assert world.call(town, "status", id_).state == "running"
    world.call(town, "cancel", id_)


def test_a_shell_completes_words_by_asking_the_program():
    asked = {"COMP_WORDS": "fedboost job del", "COMP_CWORD": "2"}
    found = said(how=INSTALLED, _FEDBOOST_COMPLETE="bash_complete", **asked)
    assert (found.code, found.out, found.err) == (0, "plain,delete\n", "")


def test_errors_are_objects_where_logs_are_json():
    for args, env in ((("--log-format", "json"), {}), ((), {"FEDBOOST_LOGS": "json"})):
        found = said(*args, "job", "list", "--json", **env)
        assert found.code == 2
        (line,) = found.lines
        assert json.loads(line)["level"] == "error"
        assert "no coordinator is given" in json.loads(line)["message"]
        assert found.last["error"]["what"] == "no coordinator is given"


@world.JOBS
def test_a_cluster_trains_from_nothing(tmp_path):
    """As installed, with imports of its own in every daemon and worker."""
    raw = world.job(hosts=("telco",))
    del raw["data"]
    options: list[object] = []
    for name in ("bank", "telco"):
        world.write(tmp_path / f"{name}.parquet", world.toy(label=name == "bank"))
        options += ["--data", f"{name}={tmp_path / name}.parquet"]
    command = ("cluster", "run", world.job_file(tmp_path, raw), *options)
    found = said(*command, "--dir", tmp_path / "c", "--json")
    assert found.code == 0, found.err
    assert (found.last["state"], found.last["trees"]) == ("finished", 2)
