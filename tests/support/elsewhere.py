"""Shards that have copies of what they are given, as those in other processes do."""

import pickle
from dataclasses import replace
from typing import Any

from fedboost.crypto.shards import Embedded, MakePart
from tests.support.federated import Room


class Elsewhere(Embedded):
    """So many shards of this process."""

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        return [pickle.loads(pickle.dumps(make(i))) for i in range(parts)]


def spread(room: Room, count: int) -> Room:
    """The same room, whose hosts have their rows added up by so many shards."""
    contexts = {
        name: replace(context, shards=Elsewhere(count)) for name, context in room.contexts.items()
    }
    return Room(room.protocol, contexts, room.wait_s)
