"""Sizes of all messages of two parties, from the padded sizes of their sets alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedboost.crypto.set_sizes import SET_IDS_MAX
from fedboost.ground.errors import ConfigError

CODE_COLUMNS = 472  # of the code's words: one base transfer each
VALUE_BITS = 76  # of an id's value, which the code encodes
CODE_WORD_BYTES = CODE_COLUMNS // 8
DENSE_ROWS = 64  # rows of a store outside its segments; an id's sum has any subset of them
CHECK_ROWS = 128  # rows of random values, which hide the check's sums
CHECK_BYTES = 80 * CHECK_ROWS  # 64 of a row and 16 of a value each
TAG_BYTES = 12
PROOF_BYTES = 16
NONCE_BYTES = 32
CHOICE_BYTES = 64 * CODE_COLUMNS
PART_IDS = 1 << 16  # of the guest in a part, about: 6 MB, and 40 MB while it is worked on
HOST_PART_IDS = 1 << 19  # of a host in a part, at most: 6 MB of tags, and 60 MB while they are made
FEW_IDS = 256  # of the guest in a part: fewer would be padded by more than they are
HOST_CAP_MAX = 1 << 25  # of a part's ids if the guest has few: hints of 0.7 GB
ROWS_PER_KEY = 1.3  # rows for each key: with three places a key, 1.23 begin to suffice
FAILURE_BITS = 40  # a set of random digests does not fit its parts with chance 2^−40


def most_of(mean: float, failure_bits: float) -> int:
    """Return the bound that a count with this mean exceeds with chance 2^−failure_bits at most.

    Bernstein's inequality, for a sum of independent choices.
    """
    t = math.sqrt(2 * math.log(2) * failure_bits)
    return int(mean + t * math.sqrt(mean) + t * t / 3) + 1


def sample_cap(ids: int, share: float) -> int:
    """Return the padded size of a sample, a `share` of a set of `ids`."""
    return ids if share >= 1 else min(ids, most_of(ids * share, FAILURE_BITS))


def segment_rows(keys: int) -> int:
    """Return the rows of each of a store's three segments, for that many keys at most."""
    return math.ceil(ROWS_PER_KEY * keys / 3) + 8


def announced_size(guest_ids: int, host_ids: int) -> int:
    """Return the size that a guest announces to all hosts for the largest of their sets,
    `host_ids`.

    The next power of two; 0 if parts by the guest's size are small enough, so that nothing about
    another host is revealed.
    """
    told = 1 << (host_ids - 1).bit_length()
    return told if told > max(guest_ids, HOST_PART_IDS) else 0


@dataclass(frozen=True)
class OprfSizes:
    """Sizes of one pair's messages; a ValueError for sets that no party may have."""

    guest_ids: int  # of the padded set
    host_ids: int
    largest: int = 0  # of all hosts' sets, as the guest has announced; 0: unknown, and not needed

    def __post_init__(self) -> None:
        if not (0 <= self.guest_ids <= SET_IDS_MAX and 0 <= self.host_ids <= SET_IDS_MAX):
            raise ValueError(f"a set has 0 to {SET_IDS_MAX} ids")

    @property
    def bins(self) -> int:
        """Number of parts; the first word of a digest chooses its part."""
        of_hosts = min(self.largest // HOST_PART_IDS, self.guest_ids // FEW_IDS)
        return max(1, round(self.guest_ids / PART_IDS), of_hosts)

    @property
    def guest_cap(self) -> int:
        """Return the most ids of the guest in a part."""
        return self._part_cap(self.guest_ids)

    @property
    def host_cap(self) -> int:
        """Return the most ids of the host in a part."""
        return self._part_cap(self.host_ids)

    @property
    def guest_room(self) -> int:
        """Return how many ids the guest can ask about in all parts; padding leaves room for more
        than its set has.
        """
        return self.bins * self.guest_cap

    @property
    def host_room(self) -> int:
        """Return how many ids the host can answer with in all parts."""
        return self.bins * self.host_cap

    @property
    def segment(self) -> int:
        """Return the rows of each of the three segments of a part."""
        return segment_rows(self.guest_cap)

    @property
    def hint_segment(self) -> int:
        """Return the rows of each of the three segments of a hint."""
        return segment_rows(self.host_cap)

    @property
    def first_check_row(self) -> int:
        """Row of a part that begins the check; the rows before it are whole words."""
        return -(-(3 * self.segment + DENSE_ROWS) // 64) * 64

    @property
    def rows(self) -> int:
        """Return the rows of a part."""
        return self.first_check_row + CHECK_ROWS

    @property
    def part_bytes(self) -> int:
        """Return the bytes of a part: its rows and the check."""
        return CODE_WORD_BYTES * self.rows + CHECK_BYTES

    @property
    def tags_bytes(self) -> int:
        """Return the bytes of a part's tags."""
        return TAG_BYTES * self.host_cap

    @property
    def marks_bytes(self) -> int:
        """Return the bytes of the marks on a part's tags."""
        return -(-self.host_cap // 8)

    @property
    def named_tags_bytes(self) -> int:
        """Return the bytes that name the common ids of a part: marks and a digest."""
        return self.marks_bytes + 32

    @property
    def named_bytes(self) -> int:
        """Return the most bytes that name the common ids of a part: marks and a digest, or a proof
        of each.
        """
        return max(self.named_tags_bytes, PROOF_BYTES * min(self.guest_cap, self.host_cap))

    @property
    def hint_bytes(self) -> int:
        """Return the bytes of a part's hint."""
        return 16 * (3 * self.hint_segment + DENSE_ROWS)

    def _part_cap(self, ids: int) -> int:
        if self.bins == 1:
            return ids
        return min(ids, most_of(ids / self.bins, FAILURE_BITS + math.log2(self.bins)))


def check_part_size(sizes: OprfSizes) -> None:
    """Raise a ConfigError if a host's share of a part would not fit its messages."""
    if sizes.host_cap > HOST_CAP_MAX:
        raise ConfigError(
            "a host's set is too large beside the guest's",
            todo="raise ids_padded_to in the guest's policy; the guest's log says how far",
            private=f"{sizes.host_ids} beside {sizes.guest_ids}: enough is {sizes.host_ids >> 13}",
            key="policy.ids_padded_to",
        )
