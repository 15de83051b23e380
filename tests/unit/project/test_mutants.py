"""`python -m tests.mutants` on a project of one module: what its tests notice, and what not."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.full  # the suite is what it judges, no behaviour of the product

PRODUCT = '''"""A toy."""
from numba import njit

LIMIT = 10
STEP = 1


def clipped(value):
    """Return at most LIMIT."""
    if value > LIMIT:
        raise ValueError(f"{value} is over {LIMIT}")
    return value


def following(value):
    return value + STEP


@njit
def doubled(n):
    return n + n


def counted_down(n):
    while n:
        n -= 1
    return n
'''

TESTS = """
import pytest
from fedboost.core import toy


def test_a_value_under_the_limit_stays():
    assert toy.clipped(3) == 3


def test_a_value_over_the_limit_is_refused():
    with pytest.raises(ValueError, match="over"):
        toy.clipped(11)


def test_what_follows_is_a_number():
    assert toy.following(3) > 0


def test_zero_is_reached():
    assert toy.counted_down(3) == 0


def test_a_kernel_doubles():
    assert toy.doubled(4) == 8
"""

CAUGHT = {
    "LIMIT = 10": "10 → 11",
    "raise": "raise ValueError(f'{value} is over {LIMIT}') → pass",
    "a condition": "value > LIMIT → not value > LIMIT",
    "what is returned": "return value + STEP → return None",
    "a kernel": "n + n → n - n",
    "a loop that does not end": "n -= 1 → n += 1",
}
MISSED = {
    "a bound": "value > LIMIT → value >= LIMIT",
    "a sign": "value + STEP → value - STEP",
    "STEP = 1": "1 → 2",
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The command's output: two lines of a mutant are the same but for its verdict."""
    project = tmp_path_factory.mktemp("project")
    for name in ("fedboost", "fedboost/core"):
        (project / name).mkdir()
        (project / name / "__init__.py").touch()
    (project / "tests").mkdir()
    (project / "fedboost/core/toy.py").write_text(PRODUCT)
    (project / "tests/test_toy.py").write_text(TESTS)
    settings = "[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n"
    (project / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "tests.mutants", "--package", "core", "--count", "100"]
    command += ["--hang", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, cwd=project, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("what", CAUGHT)
def test_a_fault_that_a_test_sees_is_caught(judged, what):
    assert re.search(rf"^short (caught|ended) .*: {re.escape(CAUGHT[what])}  \[", judged, re.M)


@pytest.mark.parametrize("what", MISSED)
def test_a_fault_that_no_test_sees_survives_and_is_listed(judged, what):
    assert re.search(rf"^short survived .*: {re.escape(MISSED[what])}  \[", judged, re.M)
    assert re.search(rf"^  by neither: .*: {re.escape(MISSED[what])}$", judged, re.M)


def test_texts_are_not_changed(judged):
    assert "A toy" not in judged
    assert "Return at most" not in judged
