"""The site of the documents: it builds strictly, and fetches nothing from anywhere."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support import documents

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]
FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?(https?:)?//"""
)
STYLED = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_document_is_a_page(site):
    for path in (ROOT / "docs").rglob("*.md"):
        page = site / path.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.exists(), path


def test_files_that_documents_link_to_are_pages_too(site):
    text = (site / "how-to" / "run-daemons.html").read_text()
    (link,) = set(re.findall(r'href="\.\./(files/configs-client-yaml\.html)"', text))
    assert "coordinator" in (site / link).read_text()


@documents.READ_SOME
def test_drawings_are_a_part_of_their_page(site):
    text = (site / "explanation" / "concepts.html").read_text()
    assert text.count('<figure class="drawing">') == 4
    assert "pictures/" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_no_page_fetches_anything_from_another_server(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = FETCHED.search(page.read_text())
        assert found is None, f"{page.name}: {found[0]}"
    for sheet in site.rglob("*.css"):
        assert not STYLED.search(sheet.read_text()), sheet.name
