"""What a party is asked twice it does once, and says twice."""

import asyncio

import pytest

from fedboost.ground.errors import ProtocolError, UnreachableError
from fedboost.messages.party_pb2 import CommitReply, StageReply, StageRequest
from fedboost.runtime.party.stage.answers import AttemptAnswers

STAGE = ("stage", "echo")
FIRST = StageRequest(job="job-1", attempt=1, stage="echo", round=2)


class Work:
    """A question's work; it waits until the test lets it go on."""

    def __init__(self, fails=None):
        self.done, self.fails, self.may_end = 0, fails, asyncio.Event()

    async def __call__(self):
        await self.may_end.wait()
        self.done += 1
        if self.fails is not None:
            raise self.fails
        return StageReply()


async def test_a_question_repeated_while_it_is_at_work_gets_the_same_answer():
    answers, work = AttemptAnswers(), Work()
    asked = [asyncio.create_task(answers.answer_once(STAGE, FIRST, work)) for _ in range(3)]
    await asyncio.sleep(0)
    work.may_end.set()
    replies = await asyncio.gather(*asked)
    assert replies[0] is replies[1] is replies[2]
    assert await answers.answer_once(STAGE, FIRST, work) is replies[0]
    assert work.done == 1


async def test_work_goes_on_when_whoever_asked_is_gone():
    answers, work = AttemptAnswers(), Work()
    asked = asyncio.create_task(answers.answer_once(STAGE, FIRST, work))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    work.may_end.set()
    assert await answers.answer_once(STAGE, FIRST, work) == StageReply()
    assert work.done == 1


async def test_what_was_refused_once_is_refused_again_without_another_try():
    answers, work = AttemptAnswers(), Work(UnreachableError("gone"))
    work.may_end.set()
    for _ in range(2):
        with pytest.raises(UnreachableError, match="gone"):
            await answers.answer_once(STAGE, FIRST, work)
    assert work.done == 1


async def test_the_same_subject_in_other_words_is_refused():
    """A stage opened at two rounds in one attempt would draw the same secrets for two states."""
    answers, work = AttemptAnswers(), Work()
    work.may_end.set()
    await answers.answer_once(STAGE, FIRST, work)
    other = StageRequest(job="job-1", attempt=1, stage="echo", round=1)
    with pytest.raises(ProtocolError, match="stage echo was asked for in other words"):
        await answers.answer_once(STAGE, other, work)
    assert work.done == 1


async def test_subjects_are_apart_and_settled_waits_for_all():
    answers, work, other = AttemptAnswers(), Work(), Work()
    asked = [
        asyncio.create_task(answers.answer_once(STAGE, FIRST, work)),
        asyncio.create_task(answers.answer_once(("round", "echo", 1), CommitReply(), other)),
    ]
    await asyncio.sleep(0)
    settled = asyncio.create_task(answers.wait_until_idle())
    work.may_end.set()
    await asked[0]
    assert not settled.done()
    other.may_end.set()
    await settled
    assert (work.done, other.done) == (1, 1)
