"""What README and docs show is done: every block of every document, as a newcomer would."""

import subprocess

import pytest

from tests import documents
from tests.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
READ = [document for document in documents.everywhere() if documents.runs(document)]


@pytest.mark.parametrize("document", READ, ids=[str(path.relative_to(ROOT)) for path in READ])
def test_what_a_document_shows_happens(document):
    args = documents.isolated(str(document))
    done = subprocess.run(args, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
