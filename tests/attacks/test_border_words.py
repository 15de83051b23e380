"""Names and errors that a terminal would obey, wherever somebody else's words are shown."""

import io
import json
import logging
from typing import Any

import pytest

from fedboost.ground import printable
from fedboost.ground.settings import parse_settings
from fedboost.messages import job_pb2
from fedboost.messages.party_pb2 import OwnedJob, OwnedJobs
from fedboost.report import html
from fedboost.runtime.client.client import Owner
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.process import logs
from tests.support.federated import now

EVIL = "ann\x1b]0;owned\x07\x1b[2J\u202egnp.exe"
OBEYED = "\x1b\x07\u202e"


def terminal():
    """What an owner's command has to print of a job, its submitter and its reason."""
    remote = {"name": "bank", "address": "127.0.0.1:9"}
    owner = Owner(parse_settings(ClientConfig, {"coordinator": remote, "insecure_loopback": True}))
    told = OwnedJobs(jobs=[OwnedJob(id="j-1", submitter=EVIL, parties=["shop", EVIL])])
    told.jobs[0].reason.what = EVIL

    async def call(*_, **__):
        return told

    patched: Any = owner._dialer
    patched.call = call
    [job] = now(owner.jobs()).jobs
    return job.submitter + "".join(job.parties) + job.reason.what


def log(style):
    """Lines that quote a peer, one of them with an exception."""
    kept, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.set_up_logging(style, logging.INFO)
        handler: Any = root.handlers[0]
        handler.setStream(kept)
        logging.getLogger("fedboost").warning("refused: %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("fedboost").exception("failed")
    finally:
        root.handlers[:], _ = before
        root.setLevel(before[1])
    if style == "text":
        return kept.getvalue()
    lines = [json.loads(line) for line in kept.getvalue().splitlines()]
    return "".join(str(value) for line in lines for value in line.values())


PLACES = {
    "terminal": terminal,
    "log": lambda: log("text"),
    "log in JSON": lambda: log("json"),
    "page": lambda: html.tag("p", EVIL),
}


@pytest.mark.parametrize("place", PLACES)
def test_nothing_that_a_terminal_obeys_is_shown(place):
    shown = PLACES[place]()
    assert "gnp.exe" in shown
    assert not [mark for mark in OBEYED if mark in shown]


@pytest.mark.parametrize("place", PLACES)
def test_everything_is_shown_where_nobody_looks_at_it(place, monkeypatch):
    def unchanged(text, **_):
        return str(text)

    for module in (printable, logs, html):
        monkeypatch.setattr(module, "printable", unchanged)
    shown = PLACES[place]()
    assert all(mark in shown for mark in OBEYED)


def test_what_is_no_text_stays_as_it_is():
    event = job_pb2.Event(number=7)
    event.round.metrics.add(name="auc\x1b", value=0.5)
    cleaned = printable.printable_message(event)
    assert (cleaned.number, cleaned.round.metrics[0].name) == (7, "auc")
    assert cleaned.round.metrics[0].value == 0.5
