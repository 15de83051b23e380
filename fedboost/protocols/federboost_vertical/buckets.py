"""Bucket ids in messages: a column takes as few bits a row as its buckets need."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.ground import wire
from fedboost.ground.arrays import Bits
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol.federboost_vertical_pb2 import BucketIds
from fedboost.protocols.federboost_vertical.params import BUCKETS_MAX

Ids = NDArray[np.uint8]

CELL_COPIES = 4  # bytes of a cell: its id, its bin of two bytes in the joined table, one to spare
BUCKET_COLUMNS_MAX = 1 << 20  # of one host, as wide as a table may be
BY_SET = -1  # in place of a split's last bucket if a set of categories divides


@dataclass(frozen=True)
class Buckets:
    """Buckets that a host discloses of its columns."""

    count: NDArray[np.int32]  # (columns,) buckets, with the one of missing values
    missing: Bits  # (columns,) whether the last one is for missing values
    categorical: Bits  # (columns,) whether the others are categories
    ids: Ids  # (rows, columns), Fortran order

    @property
    def present(self) -> NDArray[np.int32]:
        """Buckets of each column without the one of missing values, int32 (columns,)."""
        return self.count - self.missing


def bits_of_bucket(buckets: int) -> int:
    """Return the number of bits that a bucket's number takes."""
    return (buckets - 1).bit_length()


def write_message(disclosed: Buckets) -> BucketIds:
    """Return the message of these buckets."""
    columns = [
        _id_bits(disclosed.ids[:, c], bits_of_bucket(n))
        for c, n in enumerate(disclosed.count.tolist())
    ]
    return BucketIds(
        buckets=wire.pack(disclosed.count),
        missing=wire.pack_bits(disclosed.missing),
        categorical=wire.pack_bits(disclosed.categorical),
        ids=wire.pack_bits(np.concatenate([np.empty(0, np.bool_), *columns])),
    )


def read_message(got: BucketIds, rows: int, host: str, bytes_max: int = sys.maxsize) -> Buckets:
    """Return the buckets that a host has disclosed of `rows` rows.

    A PeerError if they are impossible, or would take more memory than `bytes_max`: columns of one
    bucket take no byte in the message.
    """
    what = f"the buckets of {host}'s columns"
    count = wire.unpack(got.buckets, "i4", (None,), what).astype(np.int32)
    missing = wire.unpack_bits(
        got.missing, len(count), f"the columns of {host} with missing values"
    )
    categorical = wire.unpack_bits(got.categorical, len(count), f"{host}'s categorical columns")
    if (
        len(count) > BUCKET_COLUMNS_MAX
        or ((count < 1 + missing) | (count - missing > BUCKETS_MAX)).any()
    ):
        raise PeerError(f"{host} sent more columns or buckets than there can be")
    widths = [bits_of_bucket(n) for n in count.tolist()]
    needed = rows * (sum(widths) + CELL_COPIES * len(count))
    if needed > bytes_max:
        raise PeerError(
            f"{host} sent columns that take {needed} bytes; there is memory for {bytes_max}"
        )
    bits = wire.unpack_bits(got.ids, rows * sum(widths), f"the bucket ids of {host}")
    ids = np.empty((rows, len(count)), np.uint8, order="F")
    place = 0
    for c, bits_each in enumerate(widths):
        ids[:, c] = _ids_of_bits(bits[place : place + rows * bits_each], bits_each, rows)
        place += rows * bits_each
    if rows and (ids.max(axis=0) >= count).any():
        raise PeerError(f"{host} sent ids of buckets that it does not have")
    return Buckets(count, missing, categorical, ids)


def _id_bits(ids: Ids, bits_each: int) -> Bits:
    """Return the last `bits_each` bits of each id, bool (rows · bits_each,)."""
    data = np.unpackbits(ids[:, None], axis=1)
    return data[:, 8 - bits_each :].ravel().view(np.bool_)


def _ids_of_bits(bits: Bits, bits_each: int, rows: int) -> Ids:
    data = np.zeros((rows, 8), np.bool_)
    data[:, 8 - bits_each :] = bits.reshape(rows, bits_each)
    return np.packbits(data, axis=1)[:, 0]
