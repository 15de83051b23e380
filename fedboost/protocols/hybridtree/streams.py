"""Streams of gradients to several hosts at once, part after part, of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest

from fedboost.messages.protocol.encrypted_pb2 import EncryptedGradients


def side_by_side(
    streams: Mapping[str, Iterator[EncryptedGradients]],
) -> Iterator[dict[str, EncryptedGradients | None]]:
    """Yield part after part of all streams, at least one; None after a stream's end."""
    parts = zip_longest(*streams.values())
    for part in chain([next(parts, (None,) * len(streams))], parts):
        yield dict(zip(streams, part, strict=True))


def empty_part(tree: int, first_row: int) -> EncryptedGradients:
    """Return an empty part behind the last row."""
    part = EncryptedGradients(tree=tree, first_row=first_row)
    part.rows.SetInParent()
    return part
