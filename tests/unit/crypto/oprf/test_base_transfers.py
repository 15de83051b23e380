"""Base transfers: the host has one key of each pair, the one that it chose."""

import pytest
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_from_uniform,
    crypto_core_ed25519_sub,
)

from fedboost.crypto.oprf.base_transfers import (
    TransferSender,
    _hashed_point,
    check_point,
    choose_keys,
)
from fedboost.crypto.oprf.sizes import CHOICE_BYTES, CODE_COLUMNS
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import PeerError
from tests.support.oprf_pairs import GUEST, HOST, bits

SESSION = bytes(range(200, 232))
IDENTITY = b"\1" + bytes(31)
ORDER_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
MORE_THAN_THE_FIELD = (2**255 - 19 + 1).to_bytes(32, "little")  # another spelling of the identity
POINT = crypto_core_ed25519_from_uniform(bytes(range(32)))


def test_the_host_has_the_chosen_key_of_every_pair_and_not_the_other():
    sender = TransferSender(GUEST)
    chosen = bits(HOST)
    message, keys = choose_keys(SESSION, sender.start, chosen, HOST)
    pairs = sender.keys(SESSION, message)
    assert len(sender.start) == 32
    assert len(message) == CHOICE_BYTES
    assert len(pairs) == len(keys) == CODE_COLUMNS
    for pair, key, bit in zip(pairs, keys, chosen, strict=True):
        assert pair[bit] == key != pair[1 - bit]
    assert len({key for pair in pairs for key in pair}) == 2 * CODE_COLUMNS


def test_the_same_secrets_give_the_same_messages_and_others_do_not():
    start = TransferSender(GUEST).start
    assert start == TransferSender(GUEST).start != TransferSender(Secrets(b"x" * 32)).start
    chosen = bits(HOST)
    message = choose_keys(SESSION, start, chosen, HOST)
    assert message == choose_keys(SESSION, start, chosen, HOST)
    assert message != choose_keys(SESSION, start, chosen, GUEST)


def test_keys_of_another_session_are_others():
    sender = TransferSender(GUEST)
    message, keys = choose_keys(SESSION, sender.start, bits(HOST), HOST)
    others = {key for pair in sender.keys(bytes(32), message) for key in pair}
    assert not others & set(keys)


@pytest.mark.parametrize(
    "data", [IDENTITY, bytes(32), ORDER_8, MORE_THAN_THE_FIELD, b"\2" + bytes(31), POINT[:31]]
)
def test_what_is_no_point_of_the_group_is_refused(data):
    with pytest.raises(PeerError, match="not one of the group"):
        check_point(data)
    with pytest.raises(PeerError, match="not one of the group"):
        choose_keys(SESSION, data, [0], HOST)
    message = POINT * (2 * CODE_COLUMNS)
    for at in (0, 32, 64 * CODE_COLUMNS - 32):
        changed = (message[:at] + data + message[at + 32 :])[: 64 * CODE_COLUMNS]
        with pytest.raises(PeerError, match=r"not one of the group|bytes of choices"):
            TransferSender(GUEST).keys(SESSION, changed)


def test_a_point_with_a_part_of_small_order_is_refused():
    with pytest.raises(PeerError, match="not one of the group"):
        check_point(crypto_core_ed25519_add(POINT, ORDER_8))


def test_choices_of_another_size_are_refused():
    with pytest.raises(PeerError, match="bytes of choices"):
        TransferSender(GUEST).keys(SESSION, POINT * (2 * CODE_COLUMNS - 1))


def test_a_choice_that_makes_a_key_of_nothing_is_refused():
    """Its first point is −H of its second: the sum is the identity whatever the guest's scalar."""
    zero = crypto_core_ed25519_sub(POINT, POINT)
    first = crypto_core_ed25519_sub(zero, _hashed_point(SESSION, 0, 0, POINT))
    with pytest.raises(PeerError, match="a key is none"):
        TransferSender(GUEST).keys(SESSION, (first + POINT) * CODE_COLUMNS)
