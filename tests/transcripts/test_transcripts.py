"""Who says what to whom, in which order and shape: a change of a conversation shows here."""

from pathlib import Path

import pytest

from tests.support import conversations
from tests.support.federated import now

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", conversations.NAMES)
def test_the_conversation_is_the_one_in_the_transcript(name, golden):
    room = conversations.named(name)
    now(room.walk())
    golden(HERE / f"{name}.txt", "\n".join(room.lines()) + "\n")


def test_the_conversation_does_not_depend_on_secrets():
    rooms = [conversations.secureboost() for _ in range(2)]
    for room in rooms:
        now(room.walk())
    assert rooms[0].lines() == rooms[1].lines()
