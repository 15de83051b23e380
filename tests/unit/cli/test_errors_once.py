"""An error reaches whoever runs a job once: what happened, where, and what to do."""

import subprocess
import sys

import pytest

JOB = """\
name: first
protocol: secureboost
parties: {guest: bank, hosts: [telco]}
params: {n_estimators: 2}
"""


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{n},{'yes' if n % 3 else 'no'},{n % 7}\n" for n in range(60))
    (tmp_path / "bank.csv").write_text(f"id,y,a\n{rows}")
    (tmp_path / "telco.csv").write_text("id,b\n" + "".join(f"{n},{n % 5}\n" for n in range(60)))
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def ran(folder, *words: str):
    command = [sys.executable, "-m", "fedboost", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


DATA = ("--data", "bank=bank.csv", "--data", "telco=telco.csv")


@pytest.mark.parametrize("command", [("simulate",), ("cluster", "run")], ids=" ".join)
def test_a_table_that_is_refused_is_said_once(folder, command):
    end = ran(folder, *command, "job.yaml", *DATA)
    assert end.returncode == 2
    assert not end.stdout
    for line in (
        "the label is text",
        "where: party bank, file bank.csv",
        "label_values: [no, yes]",
    ):
        assert end.stderr.count(line) == 1, end.stderr


WRONG = {
    "no job file": (("simulate", "jb.yaml", *DATA), "cannot read the file", "check the path"),
    "no table": (
        ("simulate", "job.yaml", "--data", "bank=bnk.csv", "--data", "telco=telco.csv"),
        "there is no such file",
        "check --data",
    ),
    "a folder for a table": (
        ("simulate", "job.yaml", "--data", "bank=.", "--data", "telco=telco.csv"),
        "this is no file",
        "declare a folder in a file: --data PARTY=FILE.yaml",
    ),
    "no daemon": (
        ("job", "list", "--coordinator", "127.0.0.1:9", "--tls", "certs"),
        "certs",
        "to do: ",
    ),
    "no party's name": (("simulate", "job.yaml", "--data", "bank.csv"), "PARTY=FILE", "to do: "),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_command_line_is_said_once_and_with_what_to_do(folder, wrong):
    words, *lines = WRONG[wrong]
    end = ran(folder, *words)
    said = end.stdout + end.stderr
    assert end.returncode in (1, 2, 3)
    for line in lines:
        assert said.count(line) >= 1, said
    assert len(said.splitlines()) <= 3
    assert "Traceback" not in said
