"""Every benchmark runs to its end, quickly, and gives the figures that its page claims."""

import json
import re
import subprocess
import sys

import pytest

from benchmarks import pages
from benchmarks.__main__ import questions
from tests.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SIZE = re.compile(r"(?<=[._])\d+(?=\.|$)")  # a quick run's tables and rounds are fewer

CLAIMED: dict[tuple[str, str], set[str]] = {(name, ""): set() for name in questions()}
for page, claims in pages.claims().items():
    for claim in claims:
        CLAIMED.setdefault((page, claim.part), set()).update(claim.figures)


@pytest.mark.parametrize(("name", "words"), CLAIMED, ids=" ".join)
def test_a_quick_run_gives_the_figures_of_its_page(tmp_path, name, words):
    file = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks", name, *words.split(), "--quick"]
    done = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(file.read_text())["figures"]
    figures = {SIZE.sub("", one) for one in found}
    assert {SIZE.sub("", one) for one in CLAIMED[name, words]} <= figures
