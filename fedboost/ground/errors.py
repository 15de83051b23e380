"""Every error of fedboost: its code, whose fault it is, and what a peer may be told.

An error has three lines: what happened, where (party, file, column, step), and what to do.
The three lines may be read by everybody in the job; anything that only the log may hold goes
into `private`, which never crosses a boundary and never reaches `str`.
"""

from __future__ import annotations

from typing import Any, ClassVar

_TOLD_PLACES = ("party", "step", "stage", "job", "model", "key")  # of what a table holds, to others
_ASK_OWNER = "ask the party's owner, who reads more in: fedboost party jobs"


class FedboostError(Exception):
    """What the user reads as three lines; subclasses say whose fault it is.

    `where` holds short named places, e.g. ``party="bank", column="age"``.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, todo: str = "", private: str = "", **where: str | int) -> None:
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.private = private
        self.where: dict[str, str] = {key: str(value) for key, value in where.items()}

    def at(self, **where: str | int) -> FedboostError:
        """The same error, with places added that were not known where it was raised."""
        for key, value in where.items():
            self.where.setdefault(key, str(value))
        return self

    @property
    def place(self) -> str:
        """Return where it happened, on one line: ``party bank, column age``; empty if unknown."""
        return ", ".join(f"{key} {value}" for key, value in self.where.items())

    def __str__(self) -> str:
        """Return the lines, as a traceback shows them to somebody who writes a program."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What, where and what to do: the non-empty ones of the three lines."""
        where = f"where: {self.place}" if self.where else ""
        todo = f"to do: {self.todo}" if self.todo else ""
        return [line for line in (self.what, where, todo) if line]

    def said(self) -> dict[str, Any]:
        """Return what `--json` says of it."""
        return {"code": self.code, "what": self.what, "where": self.where, "todo": self.todo}


class ConfigError(FedboostError):
    """The command line, a file or the job is wrong: whoever wrote it mends it."""

    code = "config"
    exit_code = 2


class StoreError(ConfigError):
    """The disk below a store refuses or is damaged: whoever runs the daemon mends it."""

    code = "store"


class OwnersError(FedboostError):
    """An error in which figures about a table may stand: its owner reads all of it.

    `kind` is what the table's owner lets others read: no number and no name out of the table.
    """

    def __init__(
        self, what: str, *, todo: str = "", private: str = "", kind: str = "", **where: str | int
    ) -> None:
        super().__init__(what, todo=todo, private=private, **where)
        self.kind = kind

    def quiet(self) -> OwnersError:
        """Its kind and its place in the job, without what the table holds."""
        named = {key: place for key, place in self.where.items() if key in _TOLD_PLACES}
        return type(self)(self.kind, todo=_ASK_OWNER, kind=self.kind, **named)


class DataError(OwnersError):
    """A table does not hold what the job needs; names party, file, column and row count."""

    code = "data"
    exit_code = 2

    def quiet(self) -> OwnersError:
        """See `OwnersError`; one that says no kind is of the widest."""
        self.kind = self.kind or "the table does not hold what the job needs"
        return super().quiet()


class PolicyError(OwnersError):
    """A party's owner does not allow it; without a `kind` it says nothing about a table."""

    code = "policy"
    exit_code = 4

    def quiet(self) -> OwnersError:
        """See `OwnersError`."""
        return super().quiet() if self.kind else self


class UnreachableError(FedboostError):
    """A party or the network is not there, or did not answer within its deadline."""

    code = "unreachable"
    exit_code = 3


class PeerError(FedboostError):
    """Another party sent what no honest party sends: the job ends."""

    code = "peer"
    exit_code = 1


class ProtocolError(FedboostError):
    """We were driven wrongly: a step out of order, a message missing or used twice."""

    code = "protocol"
    exit_code = 1


class JobError(FedboostError):
    """The job cannot go on for a reason of its own: it was cancelled, there is nothing to learn."""

    code = "job"
    exit_code = 1


BY_CODE: dict[str, type[FedboostError]] = {
    kind.code: kind
    for kind in (
        FedboostError,
        ConfigError,
        StoreError,
        DataError,
        PolicyError,
        UnreachableError,
        PeerError,
        ProtocolError,
        JobError,
    )
}
