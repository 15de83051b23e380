"""Every error of fedboost: its code, its exit status, and the texts for peers and for the log.

An error has three lines: the fault, its place (party, file, column, step) and a remedy. Everybody
in the job may read these lines. Details for the log only go into `private`, which never crosses a
boundary and never reaches `str`.
"""

from __future__ import annotations

from typing import Any, ClassVar

_TOLD_PLACES = ("party", "step", "stage", "job", "model", "key")  # for peers
_ASK_OWNER = "ask the party's owner, who reads more in: fedboost party jobs"


class FedboostError(Exception):
    """Error that the user reads as three lines; each subclass names the party at fault.

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
        """Add places that the code which raised the error did not know; return the error."""
        for key, value in where.items():
            self.where.setdefault(key, str(value))
        return self

    @property
    def place(self) -> str:
        """Return the places on one line: ``party bank, column age``; empty if unknown."""
        return ", ".join(f"{key} {value}" for key, value in self.where.items())

    def __str__(self) -> str:
        """Return the lines, as a traceback shows them to a programmer."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the non-empty ones of the three lines: fault, place and remedy."""
        where = f"where: {self.place}" if self.where else ""
        todo = f"to do: {self.todo}" if self.todo else ""
        return [line for line in (self.what, where, todo) if line]

    def said(self) -> dict[str, Any]:
        """Return the error's fields in the output of `--json`."""
        return {"code": self.code, "what": self.what, "where": self.where, "todo": self.todo}


class ConfigError(FedboostError):
    """The command line, a file or the job is wrong: its author corrects it."""

    code = "config"
    exit_code = 2


class StoreError(ConfigError):
    """The disk below a store refuses or is damaged: the operator of the daemon repairs it."""

    code = "store"


class OwnersError(FedboostError):
    """An error whose text may hold figures about a table: only the table's owner reads all of it.

    `kind` is the text for everybody else: no number and no name out of the table.
    """

    def __init__(
        self, what: str, *, todo: str = "", private: str = "", kind: str = "", **where: str | int
    ) -> None:
        super().__init__(what, todo=todo, private=private, **where)
        self.kind = kind

    def redacted(self) -> OwnersError:
        """Return the error's kind and place in the job, without figures about the table."""
        named = {key: place for key, place in self.where.items() if key in _TOLD_PLACES}
        return type(self)(self.kind, todo=_ASK_OWNER, kind=self.kind, **named)


class DataError(OwnersError):
    """A table lacks data that the job needs; names party, file, column and row count."""

    code = "data"
    exit_code = 2

    def redacted(self) -> OwnersError:
        """See `OwnersError`; without a kind, the text is a general one."""
        self.kind = self.kind or "the table does not hold what the job needs"
        return super().redacted()


class PolicyError(OwnersError):
    """A party's owner does not allow it; without a `kind` its text says nothing about a table."""

    code = "policy"
    exit_code = 4

    def redacted(self) -> OwnersError:
        """See `OwnersError`."""
        return super().redacted() if self.kind else self


class UnreachableError(FedboostError):
    """A party or the network is absent, or did not answer within its deadline."""

    code = "unreachable"
    exit_code = 3


class PeerError(FedboostError):
    """Another party broke the protocol: the job ends."""

    code = "peer"
    exit_code = 1


class ProtocolError(FedboostError):
    """A caller drove us wrongly: a step out of order, a message missing or used twice."""

    code = "protocol"
    exit_code = 1


class JobError(FedboostError):
    """The job itself cannot go on: it was cancelled, or there is nothing to learn."""

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


def install_advice(extra: str) -> str:
    """Return the commands that install an extra; no package index has fedboost."""
    return f"in a clone: pip install -e '.[{extra}]'; from a wheel: pip install 'WHEEL[{extra}]'"
