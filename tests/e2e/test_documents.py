"""What README and docs show is done: every block of every document, as a newcomer would."""

import os

import pytest

from tests import warm
from tests.conftest import ROOT
from tests.support import documents

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
# What is read before another document is read with that one.
BEFORE = {documents.first_of(document) for document in documents.everywhere()}
READ = [one for one in documents.everywhere() if documents.runs(one) and one not in BEFORE]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorials" / "own-tables.md"


def case(document):
    """A document to read; one whose deeds are done for another one is read with `--all` only."""
    marks = [pytest.mark.full] if document == README else []
    return pytest.param(document, marks=marks, id=str(document.relative_to(ROOT)))


def test_what_the_readme_shows_a_tutorial_shows_too():
    assert documents.deeds(README) < documents.deeds(TUTORIAL)


@documents.READ_SOME
@pytest.mark.parametrize("document", [case(document) for document in READ])
def test_what_a_document_shows_happens(document):
    done = documents.run(document)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def read(tmp_path):
    """Reads a document of these words; gives the folder in which it was read."""

    def read(text):
        document = tmp_path / "shown.md"
        document.write_text(text)
        reader = documents.Reader(tmp_path, warm.server())
        try:
            reader.read(document)
        finally:
            reader.close()
        return reader.folder

    return read


def test_blocks_share_a_shell_an_interpreter_and_a_folder(read):
    folder = read(
        """
```yaml title="a/b.yaml"
x: 1
```

```console
$ cd a; NAME=here
$ cat b.yaml
x: …
```

```python
import asyncio
await asyncio.sleep(0)
seen = open("a/b.yaml").read()
```

```python
open("seen", "w").write(seen)
```

```console
$ echo "$NAME" \\
    > ../name
```
"""
    )
    assert (folder / "seen").read_text() == "x: 1\n"
    assert (folder / "name").read_text() == "here\n"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("```console\n$ echo gone; false\n```", "ended with 1\ngone"),
        ("```console\n$ exit 3\n```", "ended with the end of the process"),
        ("```console\n$ echo 1 2\n1 3\n```", "did not print '1 3'\n1 2"),
        ("```python\nnothing\n```", "NameError"),
    ],
)
def test_a_document_that_shows_something_else_is_found(read, block, said):
    with pytest.raises(documents.UnlikeShownError) as found:
        read(f"# Wrong\n\n{block}\n")
    assert said in str(found.value)
    assert "shown.md:4" in str(found.value)


def test_what_serves_in_the_background_is_waited_for_and_stopped(read):
    serve = 'python -c \'import http.server as s; s.HTTPServer(("127.0.0.1", 0), None)'
    folder = read(f"```console\n$ {serve}.serve_forever()' & # serve &\n$ echo $! > pid\n```\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)
