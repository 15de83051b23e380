"""What a job under a lattice scheme must come to: the same job, encrypted by nothing at all."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from fedboost.encrypted.lattice import guest as lattice_guest
from fedboost.encrypted.number.packed import PackedScheme
from fedboost.flow import Artefact
from tests.support import hybrid_jobs, secureboost_jobs
from tests.support.federated import GUEST, Room, now

J = TypeVar("J", secureboost_jobs.Job, hybrid_jobs.Job)

LATTICE, LATTICE_4096, LATTICE_LARGE = RINGS = "lattice", "lattice-4096", "lattice-large"


def under(job: J, scheme: str, **more: Any) -> J:
    """The job under a scheme, with more said of the encryption."""
    return replace(job, params={**job.params, "encryption": {"scheme": scheme, **more}})


@contextlib.contextmanager
def plain_as(scheme: str) -> Iterator[None]:
    """Inside, `plain` has the integers of a lattice scheme: as many bits."""
    lattice = lattice_guest.tree_scheme(scheme)

    with (
        mock.patch.object(PackedScheme, "bits_most", lambda _, *said: lattice.bits_most(*said)),
        mock.patch.object(PackedScheme, "encoding", lambda _, *said: lattice.encoding(*said)),
        mock.patch.object(PackedScheme, "bits_least", lattice.bits_least),
    ):
        yield


def assert_same_shards(found: Mapping[str, Artefact], expected: Mapping[str, Artefact]) -> None:
    """The shards are equal bit for bit, but for the name of the scheme."""
    assert found.keys() == expected.keys()
    for party, shard in expected.items():
        own = found[party]
        assert own.arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            assert own.arrays[name].tobytes() == array.tobytes(), (party, name)
        assert repr(without_scheme(own.facts)) == repr(without_scheme(shard.facts))


def without_scheme(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a shard says, whatever its trees were encrypted with."""
    said = {name: value for name, value in facts.get("params", {}).items() if name != "encryption"}
    return {**facts, "params": said}


def assert_plain_twin(room: Room, twin: Room, scheme: str = LATTICE) -> SimpleNamespace:
    """A room under a lattice scheme and its plain twin come to the same model: shards, margins
    of all rows, metrics of all rounds. Gives the shards and both rooms.
    """
    shards = now(room.walk())
    with plain_as(scheme):
        expected = now(twin.walk())
    assert_same_shards(shards, expected)
    guest, other = room.state(GUEST), twin.state(GUEST)
    assert guest.margin.tobytes() == other.margin.tobytes()
    assert repr(guest.history) == repr(other.history)
    return SimpleNamespace(shards=shards, room=room, twin=twin)


def assert_as_plain(job: J, scheme: str = LATTICE, **more: Any) -> SimpleNamespace:
    """A job comes to what its plain twin comes to; see `assert_plain_twin`."""
    return assert_plain_twin(under(job, scheme, **more).room(), job.room(), scheme)
