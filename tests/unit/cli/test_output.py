"""Output that nobody reads, or that does not fit, ends a command in words."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "fedboost.cli.main", "data"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,x\n" + "".join(f"a{n},{n}\n" for n in range(9)))
    return path


def ended(process):
    _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said
    return process.returncode, said.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_behind_the_output_is_named(table, options):
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "check", table, *options]
        code, said = ended(subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE))
    assert code == 2
    assert said.startswith("the output cannot be written: No space left on device\nto do: free")


def test_a_reader_that_has_read_enough_ends_the_command_in_silence(table):
    command = [*COMMAND, "check", *[table] * 3, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert ended(process) == (1, "")


def test_a_working_folder_that_is_gone_is_named(table, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    split = ["split", str(table), "--layout", "vertical", "--label", "x", "--out", "out"]
    command = [*COMMAND, *split, "--party", "a", "--party", "b=id"]
    script = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *command], cwd=gone, stderr=subprocess.PIPE
    )
    code, said = ended(process)
    assert code == 2
    assert said.startswith("the folder in which the command was started is gone\nto do: change")
