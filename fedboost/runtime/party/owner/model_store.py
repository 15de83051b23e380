"""The models in a party's store: a list for the owner, and shards to download.

Only a user whom the policy lists as an approver can download a shard. The ledger records it
nevertheless, since that user can pass the shard on.
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

FETCH_STEP = "fetch_model"  # its name in the ledger; no step of a job
SHARD_REVEALS = "to an approver of this party, the party's own shard of the model."
SHARD_PROTECTION = "TLS to the user's certificate."


def list_models(models: Path) -> OwnedModels:
    """Return every model with a shard below `models`."""
    from fedboost.model import kinds

    facts_of_all = (shards.load_facts(models / name) for name in shards.model_ids(models))
    return OwnedModels(
        models=[_model_message(kinds.kind_of(facts).summary(facts)) for facts in facts_of_all]
    )


def shard_for_owner(models: Path, model: str, user: str) -> tuple[Packed, DisclosureRow]:
    """Return the files of a model's shard, and the ledger's row about the download by `user`.

    A ConfigError for an unknown model, a DataError if its files were changed.
    """
    packed = shards.read_files(shards.folder_of(models, model))
    shard = shards.unpack_shard(packed, model)
    content = packed.facts + packed.arrays
    row = DisclosureRow(
        direction="out",
        job=model,
        step=FETCH_STEP,
        kind=ShardPiece.DESCRIPTOR.full_name,
        peer=f"user {user}",  # no party can have this name
        bytes=len(content),
        values=sum(array.size for array in shard.arrays.values()),
        protection=SHARD_PROTECTION,
        reveals=SHARD_REVEALS,
        sha256=hashlib.sha256(content).hexdigest(),
        salt=secrets.token_hex(SALT_BYTES),
    )
    return packed, row


def shard_pieces(packed: Packed) -> Iterator[ShardPiece]:
    """Yield the shard in pieces for the network, facts first."""
    for piece in wire.cut_payload(packed.facts):
        yield ShardPiece(facts=piece)
    for piece in wire.cut_payload(packed.arrays):
        yield ShardPiece(arrays=piece)


async def assemble_shard(received: AsyncIterator[ShardPiece], party: str, model: str) -> Packed:
    """Return the shard that `shard_pieces` cut; a PeerError or DataError if they make none."""
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
    if shards.unpack_shard(packed, model).facts.get("job") != model:
        raise PeerError(f"{party} sent another model than {model}")
    return packed


def write_shard(out: Path, model: str, packed: Packed) -> Path:
    """Write a shard into a new folder below `out`; return that folder.

    An older copy is replaced. A ConfigError if a folder of that name holds something else.
    """
    folder = shards.folder_of(out, model)
    if folder.exists() and model not in shards.model_ids(out):
        raise ConfigError(
            "there is a folder of that name, and no model in it",
            todo="name another folder to write to",
            folder=str(folder),
        )
    shards.write_files(folder, packed)
    return folder


def _model_message(facts: dict[str, Any]) -> OwnedModel:
    """Return a model's facts, as described by its kind, as a message."""
    metrics = [
        Metric(split=split, name=name, value=value)
        for split, values in facts["metrics"].items()
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]
    names = ("name", "protocol", "role", "guest", "objective", "rounds", "trees", "whole")
    told = {name: facts[name] for name in (*names, "created")}
    return OwnedModel(id=facts["model"], hosts=facts["hosts"], metrics=metrics, **told)
