"""Gradients that go to several hosts at once: streams of other lengths, part after part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest

from fedboost.messages.protocol.encrypted_pb2 import EncryptedGradients


def side_by_side(
    streams: Mapping[str, Iterator[EncryptedGradients]],
) -> Iterator[dict[str, EncryptedGradients | None]]:
    """Part after part of all streams; None behind a stream's end, one of these at least."""
    parts = zip_longest(*streams.values())
    for part in chain([next(parts, (None,) * len(streams))], parts):
        yield dict(zip(streams, part, strict=True))


def nothing(tree: int, first_row: int) -> EncryptedGradients:
    """A part behind the last row."""
    part = EncryptedGradients(tree=tree, first_row=first_row)
    part.rows.SetInParent()
    return part
