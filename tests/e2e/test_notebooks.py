"""The notebooks in docs/ run from the first cell to the last, in a kernel of this environment."""

import base64
import io
import os
import re
import shutil
import sys

import pytest

from tests import warm
from tests.conftest import ROOT
from tests.support import documents

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CELL_S_MAX = 300  # on a busy machine; most cells take a second
NAMES = [path.stem for path in NOTEBOOKS]
DRAWN = "04-explaining-a-model"  # kept with its outputs: what draws them is in no lock
BYTES_MAX = 100_000


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder, and a home in which nobody has set up Jupyter or fedboost."""
    for variable in [name for name in os.environ if name.startswith(("FEDBOOST_", "JUPYTER_"))]:
        if variable != "FEDBOOST_DATA":
            monkeypatch.delenv(variable)
    home = tmp_path / "home"
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def executed(path, place, python=None):
    """The notebook with what its cells have put out; fails where one of them does."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    notebook = nbformat.read(path, as_version=4)
    own = KernelSpecManager(kernel_dirs=[])  # only the kernel of the interpreter that runs this
    manager = AsyncKernelManager(
        kernel_name="python3", kernel_spec_manager=own, transport="ipc", ip=str(place / "kernel")
    )
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv[0] = python or str(warm.server().folder / "python")
    where = {"metadata": {"path": str(place)}}
    client = nbclient.NotebookClient(notebook, km=manager, timeout=CELL_S_MAX, resources=where)
    client.execute(cleanup_kc=True)  # and no kernel is left
    return notebook


def outputs(notebook):
    """Everything that the cells have put out."""
    return [one for cell in notebook.cells for one in cell.get("outputs", ())]


def html(notebook):
    return "".join(one["data"].get("text/html", "") for one in outputs(notebook) if "data" in one)


def text(notebook):
    return "".join(one.get("text", "") for one in outputs(notebook))


def test_the_kernel_is_that_of_this_interpreter():
    from jupyter_client.kernelspec import KernelSpecManager

    assert KernelSpecManager(kernel_dirs=[]).get_kernel_spec("python3").argv[0] == sys.executable


def test_there_are_four_notebooks():
    first = ["01-first-model", "02-daemons", "03-choosing-a-protocol"]
    assert [*first, DRAWN] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_stored_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert path.stem == DRAWN or not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert not cell.metadata
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert not re.search(r"(?<![\w.\\])/(root|home|tmp|work)/", path.read_text())
    assert path.stat().st_size < BYTES_MAX
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@documents.READ_SOME
def test_the_first_model_is_trained_shown_and_as_good_as_one_of_pooled_columns(place):
    notebook = executed(NOTEBOOKS[0], place)
    assert "SecureBoostClassifier" in html(notebook)
    assert "tree 5 of 5" in html(notebook)
    assert (place / "first-model.html").stat().st_size > 10_000
    (table,) = [
        one.data["text/plain"]
        for one in outputs(notebook)
        if "clinic alone" in one.get("data", {}).get("text/plain", "")
    ]
    alone, both, pooled = [float(line.split()[-1]) for line in table.splitlines()[1:]]
    assert alone < both
    assert both == pytest.approx(pooled, abs=0.005)


@documents.READ_SOME
def test_daemons_are_started_asked_and_stopped(place):
    notebook = executed(NOTEBOOKS[1], place)
    assert "tree 4 of 4" in html(notebook)
    assert "the ledger is whole" in text(notebook)
    assert "laboratory's split" in text(notebook)
    assert (place / "diagnosis.html").stat().st_size > 10_000
    assert list((place / "models").iterdir())


@documents.READ_SOME
def test_the_protocols_are_compared(place):
    notebook = executed(NOTEBOOKS[2], place)
    shown = html(notebook)
    for name in (
        "secureboost",
        "federboost-vertical",
        "federboost-horizontal",
        "gbun",
        "hybridtree",
    ):
        assert name in shown
    assert "CandidateSums" in shown


def store(notebook, path):
    """Keep a notebook with its outputs: no warnings, and pictures of few colours."""
    from PIL import Image

    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        for one in cell.outputs:
            if "execution_count" in one:
                one.execution_count = None
            if png := one.get("data", {}).get("image/png"):
                picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(32)
                kept = io.BytesIO()
                picture.save(kept, "PNG", optimize=True)
                one.data["image/png"] = base64.b64encode(kept.getvalue()).decode()
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)


@documents.READ_SOME
def test_a_model_is_explained_and_its_trees_are_drawn(place, request):
    for library in ("shap", "matplotlib", "graphviz"):
        pytest.importorskip(library, reason=f"{library}, which draws, is not installed")
    if shutil.which("dot") is None:
        pytest.skip("Graphviz, which lays trees out, is not installed")
    notebook = executed(NOTEBOOKS[3], place, sys.executable)
    found = outputs(notebook)
    assert sum("image/png" in one.get("data", {}) for one in found) == 3
    assert "laboratory.worst perimeter" in html(notebook)
    (gap,) = re.findall(r"furthest from the margin: (\S+)", text(notebook))
    assert float(gap) < 1e-4
    if request.config.getoption("--rewrite"):
        store(notebook, NOTEBOOKS[3])
    kept = nbformat.read(NOTEBOOKS[3], as_version=4)
    assert html(kept) == html(notebook)
    assert [len(cell.get("outputs", ())) > 0 for cell in kept.cells] == [
        any(one.get("name") != "stderr" for one in cell.get("outputs", ()))
        for cell in notebook.cells
    ]
