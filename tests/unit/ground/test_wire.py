"""Bytes become messages and arrays in one place, and whatever does not fit is refused there."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.messages import exchange_pb2, job_pb2, party_pb2
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol import align_pb2, echo_pb2
from fedboost.messages.protocol import encrypted_pb2 as pb
from tests.support.decoders import EVERY_TYPE

SECRET = b"a secret"

# Messages


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda k: k.DESCRIPTOR.full_name)
@given(data=st.binary(max_size=60))
def test_bytes_are_a_message_of_known_fields_or_refused(kind, data):
    try:
        message = wire.decode(kind, data, "telco")
    except PeerError:
        return
    assert wire.decode(kind, wire.encode(message), "telco") == message


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x7f", b"\x08", b"\x0b"])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(PeerError, match="bytes that are no Ciphertexts"):
        wire.decode(pb.Ciphertexts, data, "telco")


def test_a_truncated_message_is_refused():
    whole = wire.encode(pb.Ciphertexts(count=3, data=bytes(96)))
    for end in range(3, len(whole)):
        with pytest.raises(PeerError):
            wire.decode(pb.Ciphertexts, whole[:end], "telco")


def test_a_json_object_is_read_and_nothing_else():
    assert wire.json_object(b'{"auc": 0.5}', "the result") == {"auc": 0.5}
    assert wire.json_object(b"", "the result") == {}
    for text in (b"{", b"[]", b"3", b"null", b"\xff", b"[" * 100_000):
        with pytest.raises(PeerError, match=r"^the result must be a JSON object$"):
            wire.json_object(text, "the result")


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x01x",  # field 3 of Ciphertexts
        b"\x08\x01\xf8\x7f\x01",  # field 2047 behind a good one
    ],
)
def test_fields_we_do_not_know_are_refused(data):
    with pytest.raises(PeerError, match="fields this version does not know"):
        wire.decode(pb.Ciphertexts, data, "telco")
    nested = b"\x12" + bytes([len(data)]) + data  # packages of CandidateSums
    with pytest.raises(PeerError, match="fields this version does not know"):
        wire.decode(pb.CandidateSums, nested, "telco")


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda k: k.DESCRIPTOR.full_name)
def test_equal_messages_have_equal_bytes(kind):
    assert wire.encode(kind()) == b""
    assert wire.decode(kind, b"", "telco") == kind()


# Arrays


@pytest.mark.parametrize("name", ["u1", "i4", "i8", "f4", "f8"])
def test_arrays_come_back_as_they_were(name):
    values = np.array([[0, 1, 2], [3, 4, 250]]).astype(name)
    back = wire.unpack(wire.pack(values), name, (2, None), "numbers")
    assert back.dtype == np.dtype("<" + name)
    assert back.tobytes() == values.tobytes()
    assert not back.flags.writeable
    turned = wire.unpack(wire.pack(np.asfortranarray(values)), name, (2, 3), "numbers")
    assert turned.tolist() == values.tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.array([True]),
        np.array([1 + 2j]),
        np.array(["x"]),
        np.array([1], np.uint64),
        np.array([None]),
    ],
)
def test_other_arrays_do_not_travel(values):
    with pytest.raises(ProtocolError, match="do not travel"):
        wire.pack(values)


def array(dtype="i4", shape=(2,), data=bytes(8)):
    return Array(dtype=dtype, shape=shape, data=data)


@pytest.mark.parametrize(
    "bad",
    [
        array(dtype="f4"),
        array(dtype="i8"),
        array(dtype="O"),
        array(dtype=">i4"),
        array(dtype=""),
        array(dtype="i4" * 1000),
        array(shape=(3,)),
        array(shape=(1,)),
        array(shape=()),
        array(shape=(2, 1)),
        array(shape=(1, 2)),
        array(shape=(2,) * 1000),
        array(shape=(2**63,)),
        array(shape=(2**62 + 2,)),  # 2^62 elements of 4 bytes wrap around to 8 bytes in 64 bits
        array(data=bytes(7)),
        array(data=bytes(9)),
        array(data=b""),
        array(data=bytes(16)),
    ],
    ids=lambda bad: f"{bad.dtype[:3]}-{len(bad.shape)}-{len(bad.data)}",
)
@pytest.mark.parametrize("length", [2, None])
def test_an_array_of_another_dtype_shape_or_size_is_refused(bad, length):
    with pytest.raises(PeerError, match="the nodes must be i4") as refused:
        wire.unpack(bad, "i4", (length,), "the nodes")
    assert len(refused.value.what) < 200


def test_an_array_with_an_empty_and_an_endless_side_is_refused():
    for endless in (2**63, 2**64 - 1):
        with pytest.raises(PeerError):
            wire.unpack(array(shape=(0, endless), data=b""), "i4", (None, None), "numbers")


@given(st.lists(st.booleans(), max_size=40))
def test_bits_come_back_as_they_were(bits):
    sent = wire.pack_bits(np.array(bits, np.bool_))
    assert len(sent.data) == (len(bits) + 7) // 8
    assert wire.unpack_bits(sent, len(bits), "rows").tolist() == bits


@pytest.mark.parametrize("count", [1, 3, 7, 9, 15])
def test_bits_set_beyond_the_last_are_refused(count):
    good = wire.pack_bits(np.ones(count, np.bool_))
    assert wire.unpack_bits(good, count, "rows").all()
    spare = -count % 8
    for place in range(spare):
        data = bytearray(good.data)
        data[-1] |= 1 << place
        bad = Array(dtype="u1", shape=good.shape, data=bytes(data))
        with pytest.raises(PeerError, match=f"beyond the {count}"):
            wire.unpack_bits(bad, count, "rows")


def test_bits_of_another_number_are_refused():
    for other in (0, 8, 17, 24):
        with pytest.raises(PeerError):
            wire.unpack_bits(wire.pack_bits(np.zeros(other, np.bool_)), 9, "rows")


# Counting and printing


def test_values_are_counted_by_what_travels_not_by_what_is_said():
    lie = array(shape=(2**64 - 1,), data=bytes(12))
    assert wire.count_values(pb.WonSplits(nodes=lie)) == 3
    assert wire.count_values(pb.WonSplits(nodes=array(shape=(2**40, 2**40)))) == 2
    assert wire.count_values(pb.CandidateSums(packages=pb.Ciphertexts(count=7))) == 7
    assert wire.count_values(align_pb2.RowsDigest(rows=5)) == 5
    assert wire.count_values(pb.Ciphertexts(count=2**64 - 1)) == 2**63 - 1
    assert wire.count_values(pb.EncryptionKey(scheme="plain")) == 0


PLANTED = [
    align_pb2.BlindedSet(origin="a secret", data=SECRET),
    align_pb2.CommonDigests(key=SECRET, data=SECRET),
    echo_pb2.Call(numbers=Array(data=SECRET, dtype="u1", shape=[8])),
    pb.EncryptionKey(key=SECRET, scheme="plain"),
    pb.CandidateSums(packages=pb.Ciphertexts(count=1, data=SECRET)),
    pb.CandidateSums(packages=pb.Ciphertexts(count=1, data=SECRET)).packages,
    pb.WonSplits(nodes=Array(data=SECRET, dtype="u1", shape=[8])).nodes,
    exchange_pb2.Piece(data=SECRET),
    exchange_pb2.Chunk(piece=exchange_pb2.Piece(data=SECRET)),
    job_pb2.SubmitRequest(spec=SECRET),
    job_pb2.StatusReport(ends="a secret"),
    party_pb2.Proposal(manifest=SECRET),
]


@pytest.mark.parametrize("message", PLANTED, ids=lambda m: m.DESCRIPTOR.full_name)
def test_messages_print_their_shape_and_never_their_content(message):
    for text in (repr(message), str(message), f"{message}", f"{message!r:>3}", f"{[message]}"):
        assert message.DESCRIPTOR.name in text
        assert "secret" not in text.replace("secureboost", "")


def test_a_description_is_short_whatever_a_peer_sent():
    loud = pb.WonSplits(nodes=Array(dtype="x" * 10_000, shape=[1] * 10_000))
    assert len(repr(loud)) < 200


# Pieces


@given(st.integers(0, 3), st.integers(-1, 1))
def test_pieces_add_up_to_the_payload(count, more):
    size = max(0, count * wire.PIECE_BYTES + more)
    payload = bytes(size)
    cut = list(wire.cut_payload(payload))
    assert b"".join(wire.piece_data(piece, "telco") for piece in cut) == payload
    assert len(cut) == max(1, -(-size // wire.PIECE_BYTES))


def test_damaged_and_oversized_pieces_are_refused():
    (good,) = wire.cut_payload(b"content")
    damaged = exchange_pb2.Piece(data=b"Content", crc32=good.crc32)
    large = bytes(wire.PIECE_BYTES + 1)
    for piece in (damaged, exchange_pb2.Piece(data=large, crc32=zlib.crc32(large))):
        with pytest.raises(PeerError, match="telco sent a piece"):
            wire.piece_data(piece, "telco")
