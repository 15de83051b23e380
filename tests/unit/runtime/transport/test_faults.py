"""An error is the same three lines on every side, and its private part stays at home."""

import grpc
import pytest

from fedboost.ground import errors
from fedboost.ground.errors import BY_CODE, ConfigError, FedboostError, PeerError
from fedboost.messages.fault_pb2 import Fault, Place
from fedboost.runtime.transport import faults, status

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FedboostError) and "code" in vars(kind)
]


def test_every_class_of_error_is_found_by_its_code():
    assert {kind.code: kind for kind in KINDS} == BY_CODE
    assert len({kind.code for kind in KINDS}) == len(KINDS) == 9


def test_every_class_of_error_has_a_status_of_its_own():
    assert set(status.CODES) == set(KINDS)
    assert len(set(status.CODES.values())) == len(KINDS)
    spoken_by_grpc = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert not spoken_by_grpc & set(status.CODES.values())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_comes_back_without_what_is_private(kind):
    error = kind("what", todo="do", private="hush", party="bank", column="age")
    fault = faults.fault_of_error(error)
    assert b"hush" not in fault.SerializeToString()
    again = faults.error_of_fault(Fault.FromString(fault.SerializeToString()))
    assert type(again) is kind
    assert (again.what, again.todo, again.private) == ("what", "do", "")
    assert again.where == {"party": "bank", "column": "age"}
    assert again.lines() == ["what", "where: party bank, column age", "to do: do"]
    code, _, metadata = status.status_of_error(error)
    assert code is status.CODES[kind]
    assert metadata[0][1] == fault.SerializeToString()


def test_a_subclass_has_the_status_of_its_class():
    class OwnError(PeerError):
        """A narrower one."""

    assert status.status_of_error(OwnError("x"))[0] is status.CODES[PeerError]


@pytest.mark.parametrize("code", ["", "peer ", "os.system", "Peer"])
def test_an_unknown_code_is_an_internal_error(code):
    error = faults.error_of_fault(Fault(code=code, what="x"))
    assert type(error) is FedboostError


def test_a_peers_words_cannot_steer_a_terminal_or_fill_it():
    loud = "\x1b[2Jred\r\n\x07" + "x" * 10_000
    fault = Fault(code="peer", what=loud, todo=loud, where=[Place(key=loud, value=loud)])
    error = faults.error_of_fault(fault)
    for line in error.lines():
        assert line.isprintable()
        assert len(line) < 3 * faults.TEXT_MAX


def test_a_peer_that_says_nothing_is_quoted_as_such():
    assert faults.error_of_fault(Fault()).what == "the other side failed without saying why"


def test_a_long_error_still_fits_into_the_status():
    error = PeerError("x" * 20_000, todo="y" * 20_000, party="bank")
    (_, packed) = status.status_of_error(error)[2][0]
    assert len(packed) < 8192
    assert faults.error_of_fault(Fault.FromString(packed)).code == "peer"


def test_private_words_are_in_no_text_of_an_error():
    error = PeerError("what", private="hush", party="bank").at(step="call", party="shop")
    assert error.where == {"party": "bank", "step": "call"}
    for text in (str(error), repr(error), error.place, *error.lines()):
        assert "hush" not in text


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, ConfigError, "telco runs a build of fedboost without"),
        (grpc.StatusCode.UNKNOWN, PeerError, "the call to telco failed: UNKNOWN"),
    ],
)
def test_a_call_that_a_build_lacks_is_a_matter_of_its_version(code, kind, what):
    none = grpc.aio.Metadata()
    failed = grpc.aio.AioRpcError(code, none, none, "Method not found!")
    error = status.error_of_call(failed, "telco", "127.0.0.1:7102")
    assert type(error) is kind
    assert error.what.startswith(what)
