"""Errors on the wire: the same three lines on every side, without private log text."""

from __future__ import annotations

from fedboost.ground.errors import BY_CODE, FedboostError
from fedboost.ground.printable import printable
from fedboost.messages.fault_pb2 import Fault, Place

TEXT_MAX = 2000  # characters of one line of a remote error


def fault_of_error(error: FedboostError) -> Fault:
    """Return the public part of an error; `private` is left out."""
    where = [Place(key=key, value=value) for key, value in error.where.items()]
    return Fault(code=error.code, what=error.what, where=where, todo=error.todo)


def error_of_fault(fault: Fault) -> FedboostError:
    """Return a remote error; an unknown code becomes an internal error."""
    kind = BY_CODE.get(fault.code, FedboostError)
    error = kind(_printable_text(fault.what) or "the other side failed without saying why")
    error.todo = _printable_text(fault.todo)
    error.where = {
        _printable_text(place.key): _printable_text(place.value) for place in fault.where
    }
    return error


def _printable_text(text: str) -> str:
    """Return a peer's text without control characters."""
    return printable(text, most=TEXT_MAX)
