"""Certificates of a coordinator, a party and a user, as tests of identities need them."""

from datetime import UTC, datetime

from fedboost.runtime.transport.certificates import Leaf

NOW = datetime.now(UTC).replace(microsecond=0)
LEAVES = [Leaf("coordinator", "coord"), Leaf("party", "bank"), Leaf("user", "ana")]
