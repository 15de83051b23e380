"""Every decoder is fed bytes that nearly are what it reads: a result, or one typed error.

`make fuzz` does the same for minutes each, guided by coverage (`tests.faults.fuzz`).
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedboost.ground import wire
from fedboost.messages.array_pb2 import Array
from tests.support.decoders import DECODERS, EVERY_TYPE, KNOWN, Decoder, message

BYTES_MAX = 4096  # of an input that is made up
AT_EACH = settings(suppress_health_check=list(HealthCheck))


def edits(sample: bytes) -> st.SearchStrategy[bytes]:
    """A sample with a few bytes changed, cut out, put in or told twice."""
    place = st.integers(0, max(len(sample) - 1, 0))
    edit = st.one_of(
        st.tuples(st.just("set"), place, st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("flip"), place, st.integers(0, 7).map(lambda bit: bytes([1 << bit]))),
        st.tuples(st.just("insert"), place, st.binary(max_size=12)),
        st.tuples(st.just("cut"), place, st.binary(max_size=64)),
        st.tuples(st.just("double"), place, st.binary(max_size=64)),
        st.tuples(st.just("end"), place, st.just(b"")),
    )

    def spoilt(changes: list[tuple[str, int, bytes]]) -> bytes:
        data = bytearray(sample)
        for how, at, given_bytes in changes:
            size = len(given_bytes)
            if how == "set":
                data[at : at + size] = given_bytes
            elif how == "flip" and at < len(data):
                data[at] ^= given_bytes[0]
            elif how == "insert":
                data[at:at] = given_bytes
            elif how == "cut":
                del data[at : at + size]
            elif how == "double":
                data[at:at] = data[at : at + size]
            elif how == "end":
                del data[at:]
        return bytes(data)

    return st.lists(edit, min_size=1, max_size=4).map(spoilt)


def near(*samples: bytes) -> st.SearchStrategy[bytes]:
    """Changed samples, and now and then something else altogether."""
    return st.one_of(*map(edits, samples), st.binary(max_size=BYTES_MAX))


@pytest.mark.some(19)
@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.DESCRIPTOR.full_name)
@AT_EACH
@given(draw=st.data())
def test_every_message_is_read_or_refused(kind, draw):
    decoder = message(kind)
    decoder.survives(draw.draw(near(*decoder.samples)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes each decoder once."""
    known: dict[str, Decoder] = {}

    def make(name):
        if name not in known:
            known[name] = DECODERS[name](tmp_path_factory.mktemp("decoder"))
        return known[name]

    return make


@pytest.mark.parametrize("name", DECODERS)
def test_every_sample_is_read(made, name):
    decoder = made(name)
    for sample in decoder.samples:
        decoder.read(sample)


@pytest.mark.some(13)
@pytest.mark.parametrize("name", DECODERS)
@AT_EACH
@given(draw=st.data())
def test_everything_else_is_read_or_refused(made, name, draw):
    decoder = made(name)
    decoder.survives(draw.draw(near(*decoder.samples)))


DTYPES = st.sampled_from([*KNOWN, "", "O", ">i4", "u8"])
SIDES = st.one_of(st.integers(0, 5), st.sampled_from([2**31, 2**62 + 1, 2**63, 2**64 - 1]))


@AT_EACH
@given(
    dtype=DTYPES,
    shape=st.lists(SIDES, max_size=5),
    data=st.binary(max_size=64),
    wanted=st.sampled_from(KNOWN),
    sides=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4),
)
def test_every_array_is_read_or_refused(dtype, shape, data, wanted, sides):
    array = Array(dtype=dtype, shape=shape, data=data)

    def read(_):
        values = wire.unpack(array, wanted, tuple(sides), "numbers")
        assert values.nbytes == len(data)
        assert not values.flags.writeable
        wire.unpack_bits(array, 9, "bits")

    Decoder(read, ()).survives(b"")
