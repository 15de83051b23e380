"""Whether and where progress is shown: in terminals, in logs, in notebooks, or nowhere."""

import io
import sys
import types

import pytest

from fedboost.messages.job_pb2 import Event, Progress, RoundDone, StateChanged, Waiting
from fedboost.sdk.progress import InNotebook, in_notebook, watching

RUNNING = Event(at=1.0, state=StateChanged(state="running"))
TREE = Event(at=2.0, round=RoundDone(progress=Progress(round="tree", done=1, of=2), seconds=1.0))


class Place:
    """Where a notebook shows something."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, drawn) -> None:
        self.shown.append(drawn._repr_html_())


@pytest.fixture
def notebook(monkeypatch):
    """A shell with a kernel, and the one place in which things are displayed."""
    place = Place()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))

    def display(drawn, display_id):
        assert display_id
        place.update(drawn)
        return place

    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    return place


def test_without_a_kernel_it_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    shell = types.SimpleNamespace(get_ipython=object)  # ipython in a terminal
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert not in_notebook()


@pytest.mark.parametrize(("verbose", "lines"), [(True, 2), (False, 0), ("auto", 0)])
def test_a_log_is_filled_only_when_asked_for(monkeypatch, verbose, lines):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with watching(verbose, "credit") as hear:
        hear(RUNNING)
        hear.waiting([Waiting(party="telco", step="answer", since=1.0)])
        hear(TREE)
    assert len([line for line in out.getvalue().splitlines() if "waiting" not in line]) == lines
    assert ("credit: running" in out.getvalue()) == bool(lines)


def test_a_terminal_gets_the_display_of_the_command_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    with watching("auto", "credit") as hear:
        hear(RUNNING)
        hear(TREE)
    assert "credit: running" in out.getvalue()


def test_a_notebook_gets_one_card_that_ends_as_things_stand(notebook):
    with watching("auto", "credit") as hear:
        hear(RUNNING)
        hear.waiting([Waiting(party="telco", step="answer", since=1.0)])
        hear(TREE)
        assert len(notebook.shown) == 1  # no picture for every event
    assert "starting" in notebook.shown[0]
    assert "tree 1 of 2" in notebook.shown[-1]
    assert "running" in notebook.shown[-1]


def test_a_card_is_whole_when_the_work_fails(notebook):
    def work():
        with watching("auto", "credit") as hear:
            hear(RUNNING)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert "running" in notebook.shown[-1]


def test_a_notebook_says_below_the_card_that_kernels_are_compiled(notebook):
    with watching("auto", "credit") as hear:
        assert isinstance(hear, InNotebook)
        hear.compiling(3)
        hear.compiling(4)
    said = "compiling once on this machine, a first job about 30 s: kernel"
    assert [text for text in notebook.shown if said in text] == [
        f"<p>{said} 3</p>",
        f"<p>{said} 4</p>",
    ]
