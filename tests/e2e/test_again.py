"""`fedboost cluster run` goes on with what Ctrl-C has interrupted, if it is asked to."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("again")]
ROOT = Path(__file__).parents[2]
ENDS_S = 60.0
HERE = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
TREES = 40
KEPT_S = 1.5  # trees that took so long are kept, at least the first (Timers.keep_s)


@pytest.fixture
def command(tmp_path):
    options: list[object] = []
    for name, table in {
        "bank": world.toy(rows=400, label=True),
        "telco": world.toy(rows=400, columns=3),
    }.items():
        world.write(tmp_path / f"{name}.parquet", table)
        options += ["--data", f"{name}={name}.parquet"]
    params = {"n_estimators": TREES, "max_depth": 4, "encryption": {"scheme": "lattice"}}
    raw = world.job(hosts=("telco",), params=params)
    del raw["data"]
    world.job_file(tmp_path, raw)
    return [sys.executable, "-m", "fedboost", "cluster", "run", "job.yaml", *map(str, options)]


def interrupted(command, folder):
    """Run the command until some trees are kept, then press Ctrl-C; give all that it said."""
    with subprocess.Popen(
        command, cwd=folder, env=HERE, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        # What runs these tests may itself have been started without Ctrl-C, as a shell's `&` does.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as running:  # fmt: skip
        assert running.stdout is not None
        said, began = "", 0.0
        for line in running.stdout:
            said += line
            if "tree 1 of" in line:
                began = time.monotonic()
            if f" of {TREES}, " in line and time.monotonic() - began > KEPT_S:
                running.send_signal(signal.SIGINT)
                break
        said += running.stdout.read()
        assert running.wait(ENDS_S) == 130
    assert "Traceback" not in said
    return said


def ran(command, folder, **how):
    return subprocess.run(
        command, cwd=folder, env=HERE, text=True, check=False, timeout=180,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how,
    )  # fmt: skip


@world.JOBS
def test_an_interrupted_run_is_offered_again_and_goes_on_where_it_was(command, tmp_path):
    said = interrupted(command, tmp_path)
    (job,) = re.findall(r"^(\S+) is paused: its daemons stop with this command$", said, re.M)
    assert "to go on with it: the same command with --resume" in said

    anew = ran([*command, "--json"], tmp_path, stdin=subprocess.DEVNULL)
    assert anew.returncode == 0, anew.stdout
    (done,) = re.findall(rf"an earlier run, {job}, was interrupted after (tree \d+ of {TREES})",
                         anew.stdout)  # fmt: skip
    assert "this one begins anew; --resume goes on with the earlier one" in anew.stdout
    assert "tree 1 of" in anew.stdout

    resumed = ran([*command, "--resume"], tmp_path, stdin=subprocess.DEVNULL)
    assert resumed.returncode == 0, resumed.stdout
    assert f"{job}, was interrupted after {done}: it goes on" in resumed.stdout
    assert "tree 1 of" not in resumed.stdout.split("it goes on")[1]
    assert f"finished with {TREES} trees" in resumed.stdout

    nothing = ran([*command, "--resume"], tmp_path, stdin=subprocess.DEVNULL)
    assert nothing.returncode == 0, nothing.stdout
    assert "no earlier run of this job is unfinished: it begins anew" in nothing.stdout


@world.JOBS
def test_a_terminal_is_asked_and_another_job_is_not(command, tmp_path):
    interrupted(command, tmp_path)
    (tmp_path / "other.yaml").write_text(
        (tmp_path / "job.yaml").read_text().replace(f"n_estimators: {TREES}", "n_estimators: 2")
    )
    other = [word.replace("job.yaml", "other.yaml") for word in command]
    said = ran(other, tmp_path, stdin=subprocess.DEVNULL)
    assert said.returncode == 0, said.stdout
    assert "earlier run" not in said.stdout

    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        command, cwd=tmp_path, env=HERE, stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal
    ) as running:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(keyboard, 4096):
                shown += chunk
                if shown.endswith(b"go on with it? [Y/n]: "):
                    os.write(keyboard, b"\n")
        except OSError:  # what Linux says when the other end is closed
            pass
        assert running.wait(ENDS_S) == 0, shown
    os.close(keyboard)
    assert b"was interrupted after tree " in shown
