"""Sessions of signed-in users, in memory, by random cookies; limits on wrong tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from fedboost.ground.errors import PolicyError

SESSIONS_MAX = 32  # browsers of one owner; the oldest session makes room
WRONG_MAX, WRONG_S = 10, 60.0  # wrong tokens of a source in so many seconds, before it must wait
SOURCES_MAX = 1024  # of wrong tokens that are remembered; the oldest makes room
SECRET_BYTES = 32


class SignInRefusedError(PolicyError):
    """A wrong token, or too many of them; `wait_s` is the time to wait, if any."""

    wait_s = 0


@dataclass(frozen=True)
class BrowserSession:
    """A browser that has signed in."""

    csrf: str  # token in its forms
    user: str  # its user
    token: bytes  # the digest of the page's token then
    ends: float  # by the clock of `Sessions`


class Sessions:
    """The sessions of one daemon's page; all methods belong to the event loop's thread."""

    def __init__(
        self,
        token: Callable[[], str],
        user: str,
        lasts_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start without sessions; `token` returns the current token of `user`. A session ends when
        it changes.
        """
        self._token, self._user, self._lasts_s, self._clock = token, user, lasts_s, clock
        self._open: dict[bytes, BrowserSession] = {}  # by the digest of their cookies
        self._wrong: dict[str, deque[float]] = {}  # by source

    def sign_in(self, given: str, source: str) -> str:
        """Return a new session's cookie for the right token; raise SignInRefusedError otherwise.

        The right token is never delayed by wrong ones, not even of the same `source`: local
        processes cannot be told apart, and 256 bits cannot be guessed.
        """
        now = self._clock()
        good = _sha256(self._token())
        if not hmac.compare_digest(good, _sha256(given)):
            raise self._refusal_of(source, now)
        return self.open(self._user)

    def open(self, user: str) -> str:
        """Return a new session's cookie for a verified `user`; a new token ends it."""
        now, good = self._clock(), _sha256(self._token())
        cookie = secrets.token_urlsafe(SECRET_BYTES)
        csrf = secrets.token_urlsafe(SECRET_BYTES)
        session = BrowserSession(csrf, user, good, now + self._lasts_s)
        self._open = {key: other for key, other in self._open.items() if other.ends > now}
        while len(self._open) >= SESSIONS_MAX:
            del self._open[next(iter(self._open))]
        self._open[_sha256(cookie)] = session
        return cookie

    def _refusal_of(self, source: str, now: float) -> SignInRefusedError:
        wrong = self._wrong.pop(source, deque(maxlen=WRONG_MAX))
        while len(self._wrong) >= SOURCES_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[source] = wrong
        if len(wrong) == WRONG_MAX and now - wrong[0] < WRONG_S:
            refused = SignInRefusedError(
                "too many wrong tokens", todo=f"try again in {WRONG_S:.0f} seconds"
            )
            refused.wait_s = int(WRONG_S)
            return refused
        wrong.append(now)
        return SignInRefusedError(
            "this is not the token of this page",
            todo="open the link that `fedboost party page` or `fedboost coordinator page` prints",
        )

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie, unless it has expired or the page's token has changed."""
        session = self._open.get(_sha256(cookie))
        if session is None or session.ends <= self._clock():
            return None
        return session if hmac.compare_digest(session.token, _sha256(self._token())) else None

    def sign_out(self, cookie: str) -> None:
        """End a session."""
        self._open.pop(_sha256(cookie), None)


def is_same_secret(first: str, second: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(_sha256(first), _sha256(second))


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
