"""Sizes: those of the specification, and parts that hold what falls into them."""

import pytest
from scipy import stats

from fedboost.crypto.oprf.sizes import (
    FAILURE_BITS,
    FEW_IDS,
    HOST_PART_IDS,
    PART_IDS,
    ROWS_PER_KEY,
    TAG_BYTES,
    OprfSizes,
    announced_size,
    check_part_size,
    most_of,
    sample_cap,
)
from fedboost.crypto.set_sizes import SET_IDS_MAX
from fedboost.ground.errors import ConfigError


def test_the_sizes_of_a_million_ids():
    sizes = OprfSizes(1_000_000, 1_000_000)
    assert sizes.bins == 15
    assert sizes.guest_cap == sizes.host_cap == 68_702
    assert (sizes.segment, sizes.first_check_row, sizes.rows) == (29_779, 89_408, 89_536)
    assert sizes.part_bytes == 59 * 89_536 + 80 * 128
    assert sizes.tags_bytes == 12 * 68_702
    assert sizes.named_tags_bytes == 8588 + 32
    up = 32 + 15 * (sizes.part_bytes + sizes.named_tags_bytes)
    down = 64 * 472 + 15 * sizes.tags_bytes
    assert (up + down) / 1_000_000 < 100


@pytest.mark.parametrize("ids", [0, 1, 19_999, 20_000, 98_303])
def test_a_small_set_is_one_part_that_holds_it_all(ids):
    sizes = OprfSizes(ids, 7)
    assert sizes.bins == 1
    assert (sizes.guest_cap, sizes.host_cap) == (ids, 7)


def test_one_id_more_makes_two_parts():
    assert OprfSizes(98_304, 98_304).bins == 2


@pytest.mark.parametrize("ids", [-1, SET_IDS_MAX + 1])
def test_sets_that_no_party_may_have_are_refused(ids):
    for sizes in ((ids, 5), (5, ids)):
        with pytest.raises(ValueError, match="a set has 0 to"):
            OprfSizes(*sizes)


@pytest.mark.parametrize("ids", [20_000, 98_305, 1_000_000, 10_000_000, 1 << 24, SET_IDS_MAX])
@pytest.mark.parametrize("host_ids", [1, 1000, 1_000_000, 1 << 24, SET_IDS_MAX])
def test_a_set_of_random_digests_overflows_a_part_with_a_chance_of_2_to_the_minus_40(ids, host_ids):
    sizes = OprfSizes(ids, host_ids, announced_size(ids, host_ids))
    share = -(-(1 << 32) // sizes.bins) / (1 << 32)  # of the part that most first words choose
    for count, cap in ((ids, sizes.guest_cap), (host_ids, sizes.host_cap)):
        assert sizes.bins * stats.binom.sf(cap, count, share) <= 2.0**-FAILURE_BITS


@pytest.mark.parametrize("ids", [20_000, 1_000_000, SET_IDS_MAX])
@pytest.mark.parametrize("host_ids", [1, 1_000_000, SET_IDS_MAX])
def test_parts_of_the_largest_sets_are_small_enough_for_their_messages_memory_and_types(
    ids, host_ids
):
    sizes = OprfSizes(ids, host_ids, announced_size(ids, host_ids))
    check_part_size(sizes)
    assert sizes.guest_cap < 2 * PART_IDS
    assert sizes.bins * sizes.guest_cap < 1.7 * ids
    assert sizes.host_cap < 1.1 * max(HOST_PART_IDS, host_ids * 2 * FEW_IDS / ids)
    assert max(sizes.part_bytes, sizes.tags_bytes, sizes.hint_bytes) < 1 << 29
    assert sizes.bins < 1 << 16  # of an id the part's number is kept as uint16
    assert max(sizes.segment, sizes.hint_segment) < 1 << 24  # places are drawn by 24 bits
    assert sizes.rows > ROWS_PER_KEY * sizes.guest_cap
    # All tags, fillers included, beside all of the guest's: how many match that are not equal.
    compared = sizes.bins * sizes.guest_cap * sizes.host_cap
    assert compared * 2.0 ** (-8 * TAG_BYTES) < 2.0**-40


def test_hosts_hear_of_the_largest_of_their_sets_only_where_parts_are_cut_by_it():
    assert announced_size(20_000, HOST_PART_IDS) == 0
    assert announced_size(20_000, HOST_PART_IDS + 1) == 2 * HOST_PART_IDS
    assert announced_size(1 << 24, 10_000_000) == 0
    assert announced_size((1 << 24) - 1, 10_000_000) == 1 << 24
    assert announced_size(20_000, SET_IDS_MAX) == SET_IDS_MAX
    assert OprfSizes(20_000, 5, 1 << 24).bins == 32
    assert OprfSizes(20_000, 5, 1 << 30).bins == 20_000 // FEW_IDS
    assert OprfSizes(10_000_000, 5, 1 << 24).bins == OprfSizes(10_000_000, 5).bins


@pytest.mark.parametrize("host_ids", [40_000_000, SET_IDS_MAX])
def test_a_host_with_too_many_ids_for_a_guest_of_few_is_refused_with_the_padding_that_helps(
    host_ids,
):
    def sizes(ids):
        return OprfSizes(ids, host_ids, announced_size(ids, host_ids))

    with pytest.raises(ConfigError, match="too large beside") as refused:
        check_part_size(sizes(100))
    assert str(host_ids) not in " ".join(refused.value.lines())
    check_part_size(sizes(int(refused.value.private.split()[-1])))


@pytest.mark.parametrize("share", [1e-4, 4096 / 1_000_000, 0.5, 1.0])
def test_a_sample_outgrows_its_padding_with_the_same_chance(share):
    cap = sample_cap(1_000_000, share)
    assert cap <= 1_000_000
    assert stats.binom.sf(cap, 1_000_000, share) <= 2.0**-FAILURE_BITS


def test_the_most_of_a_count_grows_with_its_mean():
    counts = [most_of(mean, 40) for mean in range(1000)]
    assert counts == sorted(counts)
