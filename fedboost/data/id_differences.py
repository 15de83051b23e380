"""Likely cause of ids that did not match: a spelling that is rare among the matched ids."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fedboost.data.ids import parts_of
from fedboost.ground.ids import EncodedIds

LOOKED_AT = 20_000  # ids, evenly spread over the table: enough to show a cause that matters
MORE_OFTEN = 0.3  # how much larger its share among the unmatched ids must be

_ZERO = re.compile(r"0[0-9]")
_WHOLE = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def likely_cause(ids: EncodedIds, matched: NDArray[np.bool_]) -> str:
    """Return the peculiarity of the unmatched ids in words, with a remedy; empty if there is none.

    `ids` are n encoded ids of one table, `matched` (n,) is True where all parties have the id.
    """
    if len(ids) > LOOKED_AT:
        rows = np.linspace(0, len(ids) - 1, LOOKED_AT).astype(np.int64)
        ids, matched = ids.take(rows), matched[rows]
    parts = [parts_of(party_ids) for party_ids in ids]
    lengths = [
        len(p) for party_part, m in zip(parts, matched, strict=True) for p in party_part if m
    ]
    usual = min(lengths, default=0)
    widest = max((len(p) for part in parts for p in part if _ZERO.match(p)), default=0)
    signs = (
        (
            "begin with a zero, which another party may omit",
            f"there, declare id_format: {{zfill: {widest}}}",
            lambda p: _ZERO.match(p) is not None,
        ),
        (
            "have fewer digits than the matched ones: another party may write zeros before them",
            f"declare id_format: {{zfill: {usual}}}",
            lambda p: _WHOLE.fullmatch(p) is not None and len(p) < usual,
        ),
        (
            "have blanks inside",
            "declare id_format: {strip: true} at every party",
            lambda p: any(c.isspace() for c in p),
        ),
        (
            "are numbers written as text, with a point or an exponent",
            "write them as whole numbers",
            lambda p: _NUMBER.fullmatch(p) is not None and not _WHOLE.fullmatch(p),
        ),
        (
            "have capital letters",
            "declare id_format: {lower: true} at every party",
            lambda p: p != p.lower(),
        ),
    )
    for what, remedy, has in signs:
        marked = np.array([any(has(p) for p in part) for part in parts], np.bool_)
        share, usually = (_share_marked(marked[rows]) for rows in (~matched, matched))
        if share - usually >= MORE_OFTEN:
            return f"{100 * share:.0f} % of them {what}; {remedy}"
    return ""


def _share_marked(marked: NDArray[np.bool_]) -> float:
    return float(marked.mean()) if len(marked) else 0.0
