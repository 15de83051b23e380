"""Stages that are kept inside their rounds, and carried on from there by another attempt."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from fedboost.flow import Artefact, Place, Step
from tests.support.federated import Alter, Room, now, with_seed

Kept = dict[str, Artefact]  # by party


@dataclass
class Keeping(Room):
    """A room in which every party keeps where it stands, as often as the walk allows it."""

    kept: dict[Place, Kept] = field(default_factory=dict)

    @property
    def is_quick(self) -> bool:
        """No layer is."""
        return False

    async def __call__(self, *steps: Step, **how: Any) -> None:
        """Keeps what is due before anything follows, as the coordinator has it done."""
        if self.stands:
            place, self.stands = self.stands, ()
            sessions = self.sessions.items()
            self.kept[place] = {p: stored(await s.snapshot(place)) for p, s in sessions}
            for party, taken in self.kept[place].items():
                check_state(self.protocol.module(self.contexts[party].role), taken)
        await super().__call__(*steps, **how)


def stored(taken: Artefact) -> Artefact:
    """A snapshot as a disk gives it back."""
    taken = taken.whole()
    assert not any(array.dtype.hasobject for array in taken.arrays.values())
    arrays = {name: np.array(array) for name, array in taken.arrays.items()}
    facts = json.loads(json.dumps(taken.facts))
    assert facts == taken.facts or repr(facts) == repr(taken.facts)
    return replace(taken, facts=facts, arrays=arrays)


def check_state(module: ModuleType, taken: Artefact) -> None:
    """A checkpoint's state comes back with all that it was kept with."""
    if hasattr(module, "CHECKPOINT"):
        again = Artefact.from_state(taken.state(module.CHECKPOINT)).whole()
        assert again.facts.items() <= taken.facts.items()
        assert {n: a.tobytes() for n, a in again.arrays.items()} == {
            n: a.tobytes() for n, a in taken.arrays.items()
        }


def keeping(room: Room) -> tuple[Keeping, dict[str, Artefact]]:
    """The room at its end, with all that was kept on the way, and the shards."""
    own = Keeping(room.protocol, room.contexts, room.wait_s)
    return own, now(own.walk())


def carried_on(
    make: Callable[[], Room],
    place: Place,
    kept: Kept,
    seeded: Callable[..., Room] = with_seed,
    alter: Alter | None = None,
) -> tuple[Keeping, dict[str, Artefact]]:
    """The room of another attempt at its end, and its shards; it begins behind `place`."""
    fresh = seeded(make(), repr(place).encode())
    room = Keeping(fresh.protocol, fresh.contexts, fresh.wait_s, alter, place=place)

    async def work() -> dict[str, Artefact]:
        return await room.walk(kept)

    return room, now(work())


def assert_same(found: Mapping[str, Artefact], expected: Mapping[str, Artefact]) -> None:
    """Bit for bit."""
    assert set(found) == set(expected)
    for party, shard in expected.items():
        assert repr(found[party].facts) == repr(shard.facts)
        assert {n: a.tobytes() for n, a in found[party].arrays.items()} == {
            n: a.tobytes() for n, a in shard.arrays.items()
        }


def calls(room: Room, step: str) -> int:
    """How often a step has sent something."""
    return len({p.envelope.number for p in room.posted if p.envelope.step == step})


def for_an_audit(
    module: ModuleType, room: Keeping, before: Mapping[Place, Kept] | None = None
) -> dict[tuple[str, str], bytes]:
    """What hosts have kept for audits of their own, by this attempt and by the places `before`."""
    found: dict[tuple[str, str], bytes] = {}
    for host in room.table.hosts:
        kept = [*(before or {}).values(), *room.kept.values()]
        parts = [one[host].transcript for one in kept]
        parts.append(module.snapshot(room.state(host), (len(kept),)).transcript)
        for part in parts:
            for name, array in ({} if part is None else part.arrays).items():
                found[host, name] = array.tobytes()
    return found
