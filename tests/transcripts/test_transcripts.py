"""Who says what to whom, in which order and shape: a change of a conversation shows here."""

from pathlib import Path

import pytest

from tests import conversations
from tests.federated import now

HERE = Path(__file__).parent
NAMES = (
    *("echo", "align", "align_pairs", "secureboost", "forest"),
    *("federboost_vertical", "predict", "warm_start"),
    *("federboost_horizontal", "dropout"),
    *("gbun", "gbun_dropout", "hybridtree", "lattice"),
    *("hybridtree_unscored", "predict_hybrid", "predict_unscored"),
)
# The conversations of predictions: whose model they use.
MODELS = {
    "predict": "secureboost",
    "predict_hybrid": "hybridtree",
    "predict_unscored": "hybridtree_unscored",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_conversation_is_the_one_in_the_transcript(name, golden):
    models = [now(getattr(conversations, m)().walk()) for n, m in MODELS.items() if n == name]
    room = getattr(conversations, name)(*models)
    now(room.walk())
    golden(HERE / f"{name}.txt", "\n".join(room.lines()) + "\n")


def test_the_conversation_does_not_depend_on_secrets():
    rooms = [conversations.secureboost() for _ in range(2)]
    for room in rooms:
        now(room.walk())
    assert rooms[0].lines() == rooms[1].lines()
