"""What attackers hear."""

import numpy as np
import pytest

from fedboost.encrypted.guest.offers import Offers


@pytest.fixture
def heard(monkeypatch):
    """The sums of every offer that the guest decrypts, int64 (sums, 2·outputs), node after node."""
    found: list[np.ndarray] = []
    whole = Offers.whole

    def noting(self):
        read = whole(self)
        found.extend(sums for sums, _ in read)
        return read

    monkeypatch.setattr(Offers, "whole", noting)
    return found
