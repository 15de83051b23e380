"""What there is only for a while is read meanwhile alone."""

from dataclasses import dataclass

import pytest

from fedboost.ground.errors import ProtocolError
from fedboost.ground.slot import Slot


@dataclass
class Guest:
    rows: int
    round = Slot[list[int]]("a round under way")


def test_a_slot_is_filled_when_it_is_set_and_empty_when_it_is_deleted():
    guest, other = Guest(3), Guest(4)
    for _ in range(2):
        assert not Guest.round.is_set(guest)
        with pytest.raises(ProtocolError, match="needs a round under way, which this party"):
            _ = guest.round
        guest.round = [1]
        guest.round.append(2)
        assert guest.round == [1, 2]
        assert Guest.round.is_set(guest)
        assert not Guest.round.is_set(other)
        del guest.round


def test_what_is_none_yet_can_be_ended():
    guest = Guest(3)
    del guest.round
    assert not Guest.round.is_set(guest)


def test_a_slot_is_no_field_and_is_not_printed():
    guest = Guest(3)
    guest.round = [1]
    assert guest == Guest(3)
    assert repr(guest) == "Guest(rows=3)"
