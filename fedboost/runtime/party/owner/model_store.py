"""The models in a party's store, as its owner lists them and takes one's shard along.

A shard that leaves the daemon leaves for a user whom the policy calls an approver; it is written
into the ledger all the same, since it may leave the house with that user.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.messages.exchange_pb2 import Piece
from fedboost.messages.job_pb2 import Metric
from fedboost.messages.party_pb2 import OwnedModel, OwnedModels, ShardPiece
from fedboost.model import shards
from fedboost.model.shards import Packed
from fedboost.runtime.ledger.rows import SALT_BYTES, DisclosureRow

STEP = "fetch_model"  # what the ledger calls it; no step of a job
REVEALS = "to an approver of this party, the party's own shard of the model."
PROTECTION = "TLS to the user's certificate."


def listed(models: Path) -> OwnedModels:
    """Every model of which a shard lies below `models`."""
    from fedboost.model import kinds

    facts_of_all = (shards.load_facts(models / name) for name in shards.names(models))
    return OwnedModels(models=[_owned(kinds.of(facts).described(facts)) for facts in facts_of_all])


def taken(models: Path, model: str, user: str) -> tuple[Packed, DisclosureRow]:
    """A model's shard as its files hold it, and the ledger's row for `user` taking it along.

    A ConfigError where there is no such model, a DataError where its files were changed.
    """
    packed = shards.read(shards.folder_of(models, model))
    shard = shards.unpacked(packed, model)
    content = packed.facts + packed.arrays
    row = DisclosureRow(
        direction="out",
        job=model,
        step=STEP,
        kind=ShardPiece.DESCRIPTOR.full_name,
        peer=f"user {user}",  # which no party can be called
        bytes=len(content),
        values=sum(array.size for array in shard.arrays.values()),
        protection=PROTECTION,
        reveals=REVEALS,
        sha256=hashlib.sha256(content).hexdigest(),
        salt=secrets.token_hex(SALT_BYTES),
    )
    return packed, row


def pieces(packed: Packed) -> Iterator[ShardPiece]:
    """The shard cut for the way, facts first."""
    for piece in wire.pieces(packed.facts):
        yield ShardPiece(facts=piece)
    for piece in wire.pieces(packed.arrays):
        yield ShardPiece(arrays=piece)


async def assembled(received: AsyncIterator[ShardPiece], party: str, model: str) -> Packed:
    """The shard that `pieces` cut; a PeerError or DataError where what came is no whole one."""
    facts, arrays = bytearray(), bytearray()
    async for part in received:
        kind = part.WhichOneof("content")
        if kind is None or (kind == "facts" and arrays):
            raise PeerError(f"{party} sent a model whose parts are out of order")
        piece: Piece = getattr(part, kind)
        (facts if kind == "facts" else arrays).extend(wire.piece_data(piece, party))
        if len(facts) + len(arrays) > wire.MESSAGE_BYTES_MAX:
            raise PeerError(f"{party} sent a model of more than {wire.MESSAGE_BYTES_MAX} bytes")
    packed = Packed(bytes(facts), bytes(arrays))
    if shards.unpacked(packed, model).facts.get("job") != model:
        raise PeerError(f"{party} sent another model than {model}")
    return packed


def keep(out: Path, model: str, packed: Packed) -> Path:
    """Writes a shard into the folder `out`, where it becomes the folder that is given back.

    An older copy is replaced; a ConfigError where something else has that name.
    """
    folder = shards.folder_of(out, model)
    if folder.exists() and model not in shards.names(out):
        raise ConfigError(
            "there is a folder of that name, and no model in it",
            todo="name another folder to write to",
            folder=str(folder),
        )
    shards.write(folder, packed)
    return folder


def _owned(facts: dict[str, Any]) -> OwnedModel:
    """A model's facts as its kind says them, as a message."""
    metrics = [
        Metric(split=split, name=name, value=value)
        for split, values in facts["metrics"].items()
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]
    names = ("name", "protocol", "role", "guest", "objective", "rounds", "trees", "whole")
    told = {name: facts[name] for name in (*names, "created")}
    return OwnedModel(id=facts["model"], hosts=facts["hosts"], metrics=metrics, **told)
