"""A party's models on their way to its owner: whole or refused."""

import asyncio
import contextlib
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, DataError, PeerError
from fedboost.messages.exchange_pb2 import Piece
from fedboost.messages.party_pb2 import ShardPiece
from fedboost.model import shards
from fedboost.model.shards import Packed
from fedboost.runtime.party.owner import model_store
from tests.support import whole_models
from tests.support.whole_models import MODEL


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models with a whole one in it."""
    folder = tmp_path_factory.mktemp("models")
    frame = whole_models.table(1)
    found = whole_models.trained(frame, n_estimators=2)
    shards.save_shard(folder / MODEL, whole_models.model_of(frame, found))
    return folder


@pytest.fixture(scope="module")
def packed(models):
    return model_store.shard_for_owner(models, MODEL, "ana")[0]


def assembled(parts, model=MODEL):
    """What a client makes of the parts that a daemon has sent."""

    async def received():
        for part in parts:
            yield part

    return asyncio.run(model_store.assemble_shard(received(), "bank", model))


def test_what_was_cut_is_put_together_again(models, packed):
    parts = list(model_store.shard_pieces(packed))
    assert assembled(parts) == packed
    assert all(part.ByteSize() < wire.CONTROL_BYTES_MAX for part in parts)
    loaded, kept = shards.unpack_shard(packed, MODEL), shards.load_shard(models / MODEL)
    assert loaded.facts == kept.facts
    assert loaded.arrays.keys() == kept.arrays.keys()


def test_a_long_shard_travels_in_several_pieces():
    packed = Packed(b"{}", bytes(wire.PIECE_BYTES + 1))
    parts = list(model_store.shard_pieces(packed))
    assert [part.WhichOneof("content") for part in parts] == ["facts", "arrays", "arrays"]


def test_what_is_not_whole_is_refused(packed):
    facts, arrays = model_store.shard_pieces(packed)
    cut = ShardPiece(arrays=next(wire.cut_payload(packed.arrays[:-1])))
    damaged = ShardPiece(arrays=Piece(data=arrays.arrays.data, crc32=1))
    lying = next(wire.cut_payload(packed.facts.replace(b"bank", b"bunk")))
    for parts, error, words in (
        ([], DataError, "damaged"),
        ([facts], DataError, "arrays were changed"),
        ([facts, cut], DataError, "arrays were changed"),
        ([facts, damaged], PeerError, "checksum"),
        ([arrays, facts], PeerError, "out of order"),
        ([facts, ShardPiece()], PeerError, "out of order"),
        ([ShardPiece(facts=lying), arrays], DataError, "file was changed"),
    ):
        with pytest.raises(error, match=words):
            assembled(parts)


def test_another_model_than_was_asked_for_is_refused(packed):
    with pytest.raises(PeerError, match="another model than credit-1"):
        assembled(model_store.shard_pieces(packed), "credit-1")


def test_more_than_a_message_may_hold_is_refused(packed, monkeypatch):
    monkeypatch.setattr(wire, "MESSAGE_BYTES_MAX", len(packed.facts) + 10)
    with pytest.raises(PeerError, match="more than"):
        assembled(model_store.shard_pieces(packed))


def test_the_row_of_the_ledger_says_who_took_what_along(models, packed):
    _, row = model_store.shard_for_owner(models, MODEL, "ana")
    assert (row.direction, row.job, row.peer, row.step) == ("out", MODEL, "user ana", "fetch_model")
    assert row.bytes == len(packed.facts) + len(packed.arrays)
    assert row.sha256 == hashlib.sha256(packed.facts + packed.arrays).hexdigest()
    assert row.values > 0
    assert model_store.shard_for_owner(models, MODEL, "ana")[1].salt != row.salt


def test_a_changed_model_is_not_given_away(models, tmp_path):
    folder = tmp_path / MODEL
    shards.write_files(folder, shards.read_files(models / MODEL))
    (folder / shards.ARRAYS).write_bytes(b"something else")
    with pytest.raises(DataError, match="arrays were changed"):
        model_store.shard_for_owner(tmp_path, MODEL, "ana")
    with pytest.raises(ConfigError, match="no model"):
        model_store.shard_for_owner(tmp_path, "credit-1", "ana")


def test_a_list_says_what_the_shards_say(models):
    (one,) = model_store.list_models(models).models
    facts = shards.load_facts(models / MODEL)
    assert (one.id, one.role, one.whole, one.trees) == (MODEL, facts["role"], True, facts["trees"])
    assert {metric.split for metric in one.metrics} == {"train"}


@given(st.data())
def test_damaged_arrays_under_a_hash_that_fits_are_an_error_or_arrays(packed, data):
    place = data.draw(st.integers(0, len(packed.arrays) - 1))
    put = data.draw(st.binary(min_size=1, max_size=8))
    arrays = packed.arrays[:place] + put + packed.arrays[place + len(put) :]
    facts = json.loads(packed.facts)
    facts["arrays_sha256"] = hashlib.sha256(arrays).hexdigest()
    del facts["sha256"]
    facts["sha256"] = shards.digest(facts)
    with contextlib.suppress(DataError):
        shards.unpack_shard(Packed(json.dumps(facts).encode(), arrays), MODEL)
