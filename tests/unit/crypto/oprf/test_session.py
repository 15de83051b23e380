"""Names and keys of runs: each difference between two runs makes others."""

import dataclasses
from typing import Any

import pytest

from fedboost.crypto.oprf.session import OprfSession, ids_key
from fedboost.crypto.oprf.sizes import OprfSizes
from tests.support.oprf_pairs import ATTEMPT, NONCES, session_of

OTHERS: dict[str, Any] = {
    "attempt_digest": bytes(32),
    "guest": "ban",
    "host": "kshop",
    "sizes": OprfSizes(101, 100),
    "key": bytes(32),
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(OprfSession)])
def test_another_of_any_field_names_another_run(field):
    ours = session_of(100, 100)
    other = dataclasses.replace(ours, **{field: OTHERS[field]})
    assert ours.transfers != other.transfers
    assert ours.name(b"a", b"b") != other.name(b"a", b"b")


def test_names_next_to_each_other_do_not_run_together():
    ours = session_of(100, 100)
    other = dataclasses.replace(ours, guest="banks", host="hop")
    assert ours.transfers != other.transfers


def test_the_run_is_named_by_its_base_transfers():
    ours = session_of(100, 100)
    names = {ours.name(start, choice) for start in (b"1" * 32, b"2" * 32) for choice in (b"", b"c")}
    assert len(names) == 4


def test_the_key_of_the_ids_is_fresh_if_any_nonce_or_the_attempt_is():
    keys = {
        ids_key(ATTEMPT, NONCES),
        ids_key(bytes(32), NONCES),
        ids_key(ATTEMPT, (NONCES[0], bytes(32))),
        ids_key(ATTEMPT, (bytes(32), NONCES[1])),
        ids_key(ATTEMPT, (*NONCES, bytes(32))),
    }
    assert len(keys) == 5
