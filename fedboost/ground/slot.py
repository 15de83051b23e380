"""Attributes that an object has only between two steps, without being None before and after."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, overload

from fedboost.ground.errors import ProtocolError

T = TypeVar("T")


class Slot(Generic[T]):
    """Attribute that is filled when it is set and empty when it is deleted; reading an empty one is
    a ProtocolError.

        class Guest:
            round = Slot[OpenRound]("a round under way")

        guest.round = OpenRound(…)           start_round
        guest.round.sample                   any step of the round
        del guest.round                      close_round
        Guest.round.is_set(guest)            in steps that may run without a round
    """

    def __init__(self, what: str) -> None:
        """Take the words for the value in errors."""
        self._what = what

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, _: type) -> Self: ...

    @overload
    def __get__(self, holder: object, _: type) -> T: ...

    def __get__(self, holder: object | None, _: type) -> Self | T:
        if holder is None:
            return self
        if not self.is_set(holder):
            raise ProtocolError(f"a step needs {self._what}, which this party does not have yet")
        return vars(holder)[self._name]

    def __set__(self, holder: object, value: T) -> None:
        vars(holder)[self._name] = value

    def __delete__(self, holder: object) -> None:
        vars(holder).pop(self._name, None)

    def is_set(self, holder: object) -> bool:
        """Return whether an object has the value now."""
        held: dict[str, Any] = vars(holder)
        return self._name in held
