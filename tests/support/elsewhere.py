"""Workers that have copies of what they are given, as those in other processes do."""

import pickle
from typing import Any

from fedboost.ground.part_workers import Embedded, MakePart, PartWorkers
from tests.support.contexts import altered
from tests.support.federated import Room


class Elsewhere(Embedded):
    """So many workers of this process, which take gradients."""

    takes_gradients = True

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        return [pickle.loads(pickle.dumps(make(i))) for i in range(parts)]


def spread(room: Room, part_workers: PartWorkers) -> Room:
    """The same room, whose parties have their rows added up by these workers."""
    contexts = {
        name: altered(context, services={"part_workers": part_workers})
        for name, context in room.contexts.items()
    }
    return Room(room.protocol, contexts, room.wait_s)
