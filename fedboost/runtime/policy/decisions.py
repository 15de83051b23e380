"""What a party's owners have decided about jobs: who, when, why, about exactly which manifest.

A decision is never changed and never a state: whatever a job has been through, what was decided
about its manifest stands, and what was never decided is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fedboost.errors import ConfigError
from fedboost.runtime.store.schema import damaged, whole
from fedboost.runtime.store.store import Store

REASON_CHARS_MAX = 500  # a sentence or two


class Verdict(StrEnum):
    """What an owner says."""

    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True)
class Decision:
    """One decision of a person."""

    job: str
    manifest_sha256: str  # in hex
    verdict: Verdict
    user: str
    at: float  # seconds since 1970, UTC
    reason: str  # may be empty


class Decisions:
    """One store's; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def note(
        self, job: str, manifest_sha256: bytes, verdict: Verdict, user: str, reason: str
    ) -> Decision:
        """Writes a decision down; durable before it returns."""
        if len(reason) > REASON_CHARS_MAX:
            raise ConfigError(
                f"the reason has {len(reason)} characters; {REASON_CHARS_MAX} is the most",
                todo="say it shorter",
            )
        found = Decision(job, manifest_sha256.hex(), verdict, user, self._store.now(), reason)
        with self._store.transaction() as sql:
            sql.execute(
                "INSERT INTO decisions (job, manifest_sha256, verdict, user, at, reason)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (job, found.manifest_sha256, verdict, user, found.at, reason),
            )
        return found

    def of(self, job: str, manifest_sha256: bytes) -> Decision | None:
        """The last decision about exactly this manifest of the job; None where there is none."""
        with self._store.transaction() as sql:
            row = sql.execute(
                "SELECT job, manifest_sha256, verdict, user, at, reason, hash FROM decisions"
                " WHERE job = ? AND manifest_sha256 = ? ORDER BY rowid DESC LIMIT 1",
                (job, manifest_sha256.hex()),
            ).fetchone()
        if row is None:
            return None
        try:
            job, digest, verdict, user, at, reason = whole(row)
            return Decision(job, digest, Verdict(verdict), user, at, reason)
        except ValueError:
            raise damaged(self._store.database) from None
