"""Log lines say which job and step they are about, as text and as one JSON object a line."""

import asyncio
import json
import logging

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import JobId
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.runtime.process import logs

log = logging.getLogger("fedboost.runtime.party.node.node")


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def said(work):
    """Runs in a task of its own, as every call does."""

    async def inside():
        work()

    asyncio.run(inside())


def test_a_line_of_json_says_when_what_who_and_where(capsys):
    logs.set_up_logging("json", logging.INFO, "party bank")

    def work():
        turns = [Turn(step="open_layer", number=1), Turn(step="close_layer", number=2)]
        logs.note_call(StepCall(job="credit-1", attempt=2, stage="secureboost", turns=turns))
        log.warning("%d rows\nlack a label", 3)

    said(work)
    log.info("later")
    first, later = lines(capsys)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "logger": "fedboost.runtime.party.node.node",
        "daemon": "party bank",
        "job": "credit-1",
        "attempt": 2,
        "stage": "secureboost",
        "step": "open_layer, close_layer",
        "party": "bank",
        "message": "3 rows\nlack a label",
    }
    assert "job" not in later, "what one call is about is not what the next one is"


def test_a_line_of_text_names_the_job_and_the_step(capsys):
    logs.set_up_logging("text", logging.INFO, "party bank")

    def work():
        logs.note_call(Envelope(job="credit-1", attempt=1, stage="align", step="blind"))
        log.info("passed over")

    said(work)
    log.info("no job")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "INFO fedboost.runtime.party.node.node [credit-1, 1, align, blind]: passed over"
    )
    assert second.endswith("INFO fedboost.runtime.party.node.node: no job")


def test_steps_follow_one_another_and_tasks_inherit(capsys):
    logs.set_up_logging("json", logging.INFO)

    async def job():
        logs.note_context(job="credit-1", attempt=1)
        for step in ("blind", "open"):
            logs.note_context(stage="align", step=step)
            await asyncio.create_task(asyncio.to_thread(log.info, "at work"))

    async def both():
        logs.note_call(JobId(id="fraud-1"))
        await asyncio.create_task(job())
        log.info("mine")

    asyncio.run(both())
    found = lines(capsys)
    assert [(one["job"], one.get("step")) for one in found] == [
        ("credit-1", "blind"), ("credit-1", "open"), ("fraud-1", None),
    ]  # fmt: skip
    assert all("party" not in one and "daemon" not in one for one in found)


def test_what_a_peer_calls_a_job_cannot_forge_a_line(capsys):
    logs.set_up_logging("text", logging.INFO)

    def work():
        logs.note_call(Envelope(job="x\nERROR fedboost: all is lost" + 200 * "y", attempt=1))
        log.info("refused")

    said(work)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert len(shown) < 200


def test_an_exception_stays_on_its_line(capsys):
    logs.set_up_logging("json", logging.INFO)
    try:
        raise ConfigError("no such file")
    except ConfigError:
        log.exception("failed")
    (one,) = lines(capsys)
    assert "ConfigError: no such file" in one["exception"]
    assert one["level"] == "error"


def test_setting_up_twice_says_everything_once(capsys):
    logs.set_up_logging("text", logging.INFO)
    assert not logs.is_json()
    logs.set_up_logging("json", logging.WARNING)
    assert logs.is_json()
    log.info("nothing")
    log.warning("once")
    assert len(lines(capsys)) == 1
