"""Noise under encryption: of every scheme it arrives whole, in the room that is kept for it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedboost.core import binning
from fedboost.core.split import Candidates
from fedboost.crypto.masking import Masks
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.cells.request import CandidateTerms
from fedboost.encrypted.lattice import guest as lattice_guest
from fedboost.encrypted.scheme import host_noise, keys, loading
from fedboost.encrypted.scheme.ciphers import NodeBounds
from fedboost.encrypted.scheme.host_noise import MOST, NoiseScale, as_masks
from fedboost.ground.errors import ConfigError, PeerError, ProtocolError
from tests.support.ciphertexts import arrived, encrypted, short_keys
from tests.support.federated import GUEST, HOSTS, contexts_for, frame_of

SCHEMES = ("plain", "paillier", "okamoto-uchiyama")
LATTICES = ("lattice", "lattice-4096", "lattice-large")
BITS, ROWS = 8, 3
SUMS = 100_000  # of gradients and of hessians together
SIGMA = 0.5


def layout_of(public, outputs=1, **more):
    noise = {"g_noise": 700, "h_noise": 900} | {
        key: more.pop(key) for key in ("g_noise", "h_noise") if key in more
    }
    return GhLayout(BITS, ROWS, public.plaintext_bits, outputs, **noise, **more)


def sums_of(private, layout):
    """A row of the least numbers, one of the greatest, and what noise may make of each."""
    outputs, most = layout.outputs, 1 << BITS
    gh = np.array([[-most, 0] * outputs, [most, most] * outputs])
    rows = encrypted(private, gh, layout)
    pair = np.array([layout.g_noise, layout.h_noise] * outputs)
    chosen = np.array([0, 0, 1, 1, 0, 1])
    signs = np.array([-1, 1, -1, 1, 0, 0])
    return rows[chosen], gh[chosen], signs[:, None] * pair


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_sums_arrive_with_all_of_their_noise(scheme, pack, compress, outputs):
    private, public = short_keys(scheme)
    layout = layout_of(public, outputs, pack=pack, compress=compress)
    rows, gh, noise = sums_of(private, layout)
    counts = [4, 2]
    released = public.release(rows, layout, public.blinders(), counts, as_masks(noise))
    found = private.decrypt(arrived(released), layout, counts)
    assert found.tolist() == (gh + noise).tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_where_there_is_noise_no_sum_leaves_without_it_or_with_more(scheme):
    private, public = short_keys(scheme)
    layout = layout_of(public)
    rows, _, noise = sums_of(private, layout)
    beyond = noise + np.sign(noise) * (layout.bound + 1)
    wide = Masks(np.zeros((len(rows), 2, 2), np.int64), 63, 1)
    for masks in (None, as_masks(beyond), as_masks(noise[:, :1]), as_masks(noise[1:]), wide):
        with pytest.raises(ProtocolError, match="do not have the masks"):
            public.release(rows, layout, public.blinders(), masks=masks)
    bare = layout_of(public, g_noise=0, h_noise=0)
    with pytest.raises(ProtocolError, match="do not have the masks"):
        public.release(rows, bare, public.blinders(), masks=as_masks(0 * noise))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_sum_beyond_its_rows_and_the_noise_is_refused(scheme):
    private, public = short_keys(scheme)
    layout = layout_of(public)
    most = 1 << BITS
    for column, gh in ((0, (most, 0)), (0, (-most, 0)), (1, (0, most)), (1, (0, 0))):
        rows = encrypted(private, np.array([gh]), layout)
        whole = rows[:0].joined([rows] * ROWS)
        total = public.segment_sum(whole, np.arange(ROWS), np.zeros((ROWS, 1), np.int32), 1)
        sign = -1 if gh == (0, 0) or gh[0] < 0 else 1
        for more in (0, 1):
            noise = np.zeros((1, 2), np.int64)
            noise[0, column] = sign * ((layout.g_noise, layout.h_noise)[column] + more)
            wider = layout_of(public, g_noise=layout.g_noise + 1, h_noise=layout.h_noise + 1)
            if wider.lanes[0].bits != layout.lanes[0].bits:
                pytest.fail("the fields of both must be of one width")
            released = public.release(total, wider, public.blinders(), masks=as_masks(noise))
            if more:
                with pytest.raises(PeerError, match="declared range"):
                    private.decrypt(arrived(released), layout, [1])
            else:
                found = private.decrypt(arrived(released), layout, [1])
                assert found.tolist() == (ROWS * np.array([gh]) + noise).tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sums_of_few_of_many_rows_arrive_without_the_multiples(scheme):
    private, public = short_keys(scheme)
    layout = GhLayout(BITS, 200, public.plaintext_bits, g_noise=700, h_noise=900)
    most = 1 << BITS
    gh = np.array([[-most, 0], [most, most], [3, 5]])
    rows, chosen = encrypted(private, gh, layout), np.array([0, 1, 2] * 40)
    signs = np.array([-1, 1, 0] * 40)[:, None]
    noise = signs * np.array([700, 900])
    drawn = np.random.default_rng(1).integers(0, 1 << 63, noise.shape, dtype=np.uint64)
    multiples = layout.multiples(1, drawn)
    assert (multiples % layout.modulus(1) == 0).all()
    for column, least in ((0, -1), (1, 0)):  # as far as the field goes, evenly
        steps, often = np.unique(multiples[:, column] // layout.modulus(1), return_counts=True)
        end = (199 << BITS) // layout.modulus(1)
        assert steps.tolist() == list(range(least * end, end + 1))
        assert stats.chisquare(often).pvalue > 1e-3
    masks = as_masks(noise + multiples)
    of_nodes = [100, 20]
    released = public.release(rows[chosen], layout, public.blinders(), of_nodes, masks)
    found = private.decrypt(arrived(released), layout, of_nodes)
    assert found.tolist() == (gh[chosen] + noise + multiples).tolist()
    assert layout.reduced(found, 1).tolist() == (gh[chosen] + noise).tolist()


@pytest.mark.parametrize("rows", [1, 7, 100, 199, 200])
def test_the_part_of_a_node_holds_its_sums_and_their_noise(rows):
    layout = GhLayout(BITS, 200, 400, g_noise=700, h_noise=900)
    words = np.full((1, 2), (1 << 64) - 1, np.uint64)
    for drawn in (words, 0 * words):
        for end in ([-(rows << BITS) - 700, -900], [(rows << BITS) + 700, (rows << BITS) + 900]):
            whole = np.array([end]) + layout.multiples(rows, drawn)
            assert layout.reduced(whole, rows).tolist() == [end]


def test_fields_without_room_beside_a_node_have_no_multiples():
    layout = GhLayout(50, 100, 2047, g_noise=1 << 56, h_noise=1 << 56)
    words = np.full((4, 2), (1 << 64) - 1, np.uint64)
    assert not layout.multiples(90, words).any()
    sums = np.array([[(100 << 50), (1 << 56)]])
    assert layout.reduced(sums, 90).tolist() == sums.tolist()


def test_a_host_of_iterative_affine_cannot_add_noise():
    private, public = short_keys("iterative-affine")
    layout = GhLayout(BITS, ROWS, public.plaintext_bits, g_noise=5, h_noise=5)
    rows = encrypted(private, np.zeros((1, 2), np.int64), layout)
    noise = as_masks(np.ones((1, 2), np.int64))
    with pytest.raises(ConfigError, match="cannot multiply or add numbers that the host knows"):
        public.release(rows, layout, public.blinders(), masks=noise)


def test_rows_of_negative_hessians_are_refused_with_noise_as_without():
    for noise in (0, 900):
        layout = GhLayout(BITS, ROWS, 400, h_noise=noise, g_noise=noise)
        layout.check_values(np.array([[-(1 << BITS), 0]]))
        with pytest.raises(ConfigError, match="outside the declared"):
            layout.check_values(np.array([[0, -1]]))


def test_without_noise_fields_are_as_wide_as_they_were():
    layout = GhLayout(42, 1_000_000, 2047)
    assert (layout.g_bits, layout.h_bits) == (63, 62)
    assert {digit.noise for lane in layout.lanes for digit in lane.digits} == {0}


# How much


def cuts(count):
    """So many candidates of columns that nobody lacks."""
    column = np.arange(count, dtype=np.int32)
    listed = Candidates(column, np.zeros(count, np.int16), np.zeros(count, np.bool_))
    return NodeCandidates(listed, (), np.arange(count))


def seat_of(**said):
    """A seat at a job of two parties and one row."""
    values = np.zeros((1, 1), np.float32)
    frames = {GUEST: frame_of([b"1"], values, [1.0]), HOSTS[0]: frame_of([b"1"], values)}
    return contexts_for("secureboost", frames, said)[HOSTS[0]]


def drawn_under(scheme, count):
    """The noise of so many sums as the guest reads it, in units of σ."""
    private, public = short_keys(scheme)
    sigma = 1 << (BITS - 1)
    layout = layout_of(public, g_noise=MOST * sigma, h_noise=MOST * sigma)
    gh = np.array([[3, 5]])
    rows = encrypted(private, gh, layout)
    noise = host_noise.HostNoise(
        NoiseScale(np.array([sigma, sigma])), Secrets(scheme.encode() * 32)
    )
    own = noise.of_node((0, 0), np.arange(1, dtype=np.int32), cuts(count))
    every = rows[np.zeros(count, np.int64)]
    released = public.release(every, layout, public.blinders(), masks=as_masks(own))
    return (private.decrypt(arrived(released), layout, [count]) - gh) / sigma


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_noise_under_a_key_has_its_sigma(scheme):
    found = drawn_under(scheme, SUMS // 2)
    assert found.size >= SUMS
    assert abs(found.std() - 1) < 0.03
    assert abs(found.mean()) < 0.03


class Pair:
    """A guest and a host of one job with noise, of the lattice."""

    def __init__(self, scheme, outputs=4, rows=ROWS):
        ids = [b"%06d" % i for i in range(rows)]
        values = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        label = np.arange(rows) % outputs
        frames = {GUEST: frame_of(ids, values, label), HOSTS[0]: frame_of(ids, values)}
        said = {"objective": "multi:softprob", "num_class": outputs, "multi_output": True}
        said |= {"encryption": {"scheme": scheme}, "host_noise": SIGMA}
        contexts = contexts_for("secureboost", frames, said)
        params = contexts[GUEST].params
        bits = loading.tree_scheme(params).bits_of(params, rows)
        nonces = tuple(keys.own_nonce(contexts[party]) for party in (GUEST, HOSTS[0]))
        self.guest = keys.guest_side(contexts[GUEST], bits, [rows], nonces)
        cuts = binning.fit(values, 8, ())
        told = self.guest.key_message(0)
        side = keys.host_side(contexts[HOSTS[0]], told, rows, cuts, are_all=True)
        self.scale = NoiseScale.of(params, bits)
        most = (1 << bits) - 1
        self.gh = np.full((rows, 2 * outputs), most)
        self.given = self.guest.rows(0, self.gh, rows)
        [part] = self.given.parts()
        self.held = side.rows(side.read_part(part.rows.data, rows), 0, self.given.key_for(HOSTS[0]))

    def read(self, noise, most):
        """The sum of all rows, as often as there is noise for it."""
        cells = self.held.row_sums.sums(np.arange(ROWS), np.zeros((ROWS, 1), np.int32), 1)
        every = CandidateTerms.of_cells(0, 0, ROWS, 1)[np.zeros(len(noise), np.int64)]
        terms = replace(every, noise=noise)
        data = b"".join(part.data for part in self.held.blind_cells(cells, [terms]))
        return self.given.read(data, [len(noise)], [NodeBounds(ROWS, most)])


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("scheme", LATTICES)
def test_noise_under_a_lattice_has_its_sigma(scheme):
    pair = Pair(scheme)
    count = SUMS // 8
    assert pair.held.noise is not None
    noise = pair.held.noise.of_node((0, 0), np.arange(ROWS, dtype=np.int32), cuts(count))
    total = pair.gh.sum(axis=0)
    sigma = pair.scale.sigma_of(ROWS)
    found = (pair.read(noise, total + pair.scale.most) - total) / sigma
    assert found.size >= SUMS
    assert abs(found.std() - 1) < 0.03
    assert abs(found.mean()) < 0.03


@pytest.mark.parametrize("scheme", LATTICES)
def test_a_lattice_has_room_for_the_greatest_noise_and_the_guest_for_no_more(scheme):
    pair = Pair(scheme)
    total, most = pair.gh.sum(axis=0), pair.scale.most
    for sign in (-1, 1):
        noise = sign * most[None]
        assert pair.read(noise, total + most).tolist() == (total + noise).tolist()
    with pytest.raises(PeerError, match="does not decrypt"):
        pair.read(most[None] + 1, total + most)
    with pytest.raises(ProtocolError, match="do not have the noise"):
        pair.read(most[None, :1], total + most)


@pytest.mark.parametrize("scheme", [*SCHEMES[:1], *LATTICES])
@pytest.mark.parametrize("rows", [1, 500, 1000, 1 << 17])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 64.0])
def test_every_sum_and_its_noise_fits_the_budget(scheme, rows, sigma):
    context = seat_of(encryption={"scheme": scheme}, host_noise=sigma)
    bits = loading.tree_scheme(context.params).bits_of(context.params, rows)
    most = int(NoiseScale.of(context.params, bits).most[0])
    if scheme == "plain":
        assert (rows << bits) + 256 * most <= 1 << 62
        assert keys.gh_layout(context.params, bits, rows, 2047).g_noise == most
        return
    budget = lattice_guest.tree_scheme(scheme).budget(context.params, rows, bits)
    for node in {1, rows}:
        width = budget.width(node) - budget.parameters.scale_bits
        assert node * budget.message_most + most < 1 << (width - 1)
    assert budget.width(rows) <= budget.parameters.modulus_bits


def test_precision_that_leaves_no_room_for_noise_is_refused():
    for scheme, bits in (("plain", 50), ("lattice", 14)):
        rows = 1000 if scheme == "plain" else 1 << 14
        for sigma, fits in ((0.0, True), (64.0, False)):
            said = {"encryption": {"scheme": scheme}, "precision_bits": bits}
            context = seat_of(**said, host_noise=sigma)
            if fits:
                assert loading.tree_scheme(context.params).bits_of(context.params, rows) == bits
                continue
            with pytest.raises(ConfigError, match=f"precision_bits is {bits}.*and their noise"):
                loading.tree_scheme(context.params).bits_of(context.params, rows)
