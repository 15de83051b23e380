"""The changes that docs/development/first-change.md shows, each made in a copy of the product."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.shown_commands import blocks

PAGE = ROOT / "docs" / "development" / "first-change.md"
JOB = """
name: first
protocol: secureboost
parties: {guest: bank, hosts: [telco]}
params: {n_estimators: 1, max_depth: %d, encryption: {scheme: plain}}
"""


def section(title):
    """Return the text below one heading of the page."""
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def patched(text, diff):
    """Return a file's text with the hunks of a diff; each applies at one place alone."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
        new = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def changed(tmp_path):
    """A function that makes a section's change, and one that runs Python with it."""
    shutil.copytree(ROOT / "fedboost", tmp_path / "fedboost")

    def make(title):
        for block in blocks(section(title)):
            if block.language == "diff":
                path = tmp_path / re.findall(r"^\+\+\+ b/(\S+)$", block.text, re.MULTILINE)[0]
                path.write_text(patched(path.read_text(), block.text))
            elif block.title is not None:
                (tmp_path / block.title).write_text(block.text)

    def python(*words):
        run = [sys.executable, *map(str, words)]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return make, python


def test_a_metric(changed):
    make, python = changed
    make("A metric")
    said = (
        "import numpy as np, sklearn.metrics as sk; from fedboost.core.metrics import evaluate;"
        "y, p = np.array([1.0, 2.0, 9.0]), np.array([1.5, 2.5, 3.0]);"
        "print(evaluate('rmsle', y, p) / sk.mean_squared_log_error(y, p) ** 0.5)"
    )
    code, out = python("-c", said)
    assert code == 0, out
    assert float(out) == pytest.approx(1.0)


def test_a_kind_of_source(changed, tmp_path):
    make, python = changed
    make("A kind of source")
    people = np.array([(1, 0.5), (2, 1.5)], dtype=[("id", "i8"), ("amount", "f8")])
    np.save(tmp_path / "people.npy", people)
    code, out = python("-m", "fedboost", "data", "check", "people.npy")
    assert code == 0, out
    assert "amount" in out
    assert "2 rows" in out


def test_a_command(changed, tmp_path):
    make, python = changed
    make("A command")
    (tmp_path / "people.csv").write_text("id,age\n1,30\n2,40\n3,50\n")
    code, out = python("-m", "fedboost", "data", "head", "people.csv", "--rows", "2")
    assert code == 0, out
    assert [json.loads(line)["age"] for line in out.splitlines()] == ["30", "40"]
    assert "Print the first rows of FILE." in python("-m", "fedboost", "data", "-h")[1]


@pytest.mark.full
def test_a_step_of_what_a_host_releases(changed, tmp_path):
    make, python = changed
    make("A step of what a host releases")
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=200), draw.integers(0, 2, 200)
    for name, column, values in (("telco", "x", x), ("bank", "y", y)):
        rows = [f"{row},{value}" for row, value in enumerate(values)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"id,{column}", *rows, ""]))
    for depth, expected in ((1, 0), (4, 4)):
        (tmp_path / "job.yaml").write_text(JOB % depth)
        words = ("simulate", "job.yaml", "--data", "bank=bank.csv", "--data", "telco=telco.csv")
        code, out = python("-m", "fedboost", *words)
        assert code == expected, out
        assert ("a node has fewer than 50 rows" in out) == bool(expected)
