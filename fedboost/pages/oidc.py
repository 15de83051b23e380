"""Sign-in by an OpenID Connect provider: the authorization-code flow with PKCE.

A person's claim becomes a role, one of the names in the daemon's settings; a person without a role
is refused. OpenID Connect Core 1.0, sections 3.1.2 and 3.1.3; RFC 7636; RFC 9207.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote_plus, urlencode

from aiohttp import BasicAuth, ClientError, ClientSession, ClientTimeout
from yarl import URL

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import optional_library
from fedboost.pages.sessions import SignInRefusedError, is_same_secret
from fedboost.runtime.config.page import Oidc, is_web_address

FLOWS_MAX, FLOW_S = 256, 600.0  # sign-ins in progress, and the time limit of one
ANSWER_BYTES_MAX, ANSWER_S = 1 << 20, 10.0  # of the provider
KEYS_S = 30.0  # between two looks at its keys, where a token names one that we do not know
LEEWAY_S = 60  # that clocks may differ by
SECRET_BYTES = 32
# None of them is checked with a secret that we share with the provider.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")


@dataclass(frozen=True)
class OidcFlow:
    """A sign-in that has begun in one browser."""

    binding: str  # the browser's own secret, in a cookie
    nonce: str
    verifier: str
    back: str  # where the provider sends the browser
    there: str  # the requested page
    ends: float


class OidcProvider:
    """A provider for a page. All methods belong to the event loop's thread."""

    def __init__(self, settings: Oidc, clock: Callable[[], float] = monotonic) -> None:
        """Prepare the sign-in; raise ConfigError if the extra `oidc` is not installed."""
        self._jwt = optional_library("jwt", "page.oidc", "oidc")
        self._settings, self._clock = settings, clock
        self._flows: dict[str, OidcFlow] = {}  # by state, oldest first
        self._known: Mapping[str, Any] = {}  # the provider's metadata
        self._keys: Any = None
        self._looked = 0.0  # for keys

    async def begin(self, back: str, there: str) -> tuple[str, str]:
        """Return the provider's address to go to, and a secret for the browser to keep.

        An UnreachableError or ConfigError where the provider does not say how.
        """
        known = await self._discover()
        now, state = self._clock(), _random_secret()
        self._flows = {key: flow for key, flow in self._flows.items() if flow.ends > now}
        while len(self._flows) >= FLOWS_MAX:
            del self._flows[next(iter(self._flows))]
        flow = OidcFlow(
            _random_secret(), _random_secret(), _random_secret(), back, there, now + FLOW_S
        )
        self._flows[state] = flow
        digest = hashlib.sha256(flow.verifier.encode()).digest()
        params = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": back,
            "scope": " ".join(("openid", *self._settings.scopes)),
            "state": state,
            "nonce": flow.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        address = str(known["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(params)}", flow.binding

    async def end(self, query: Mapping[str, str], binding: str) -> tuple[str, str]:
        """Return the role of the browser's user, and the requested page.

        Raise SignInRefusedError for an answer to a request of another browser, for an invalid
        token, and for a user without a role here.
        """
        flow = self._flows.pop(query.get("state", ""), None)
        if flow is None or flow.ends <= self._clock() or not is_same_secret(flow.binding, binding):
            raise _sign_in_error("this browser has not started this sign-in, or it has expired")
        if query.get("iss", self._settings.issuer) != self._settings.issuer:
            raise _sign_in_error("another provider has answered")
        if "code" not in query:
            raise _sign_in_error("the provider did not let you in")
        claims = await self._verified_claims(await self._request_token(flow, query["code"]))
        if not is_same_secret(str(claims.get("nonce", "")), flow.nonce):
            raise _sign_in_error("the provider's token belongs to another sign-in")
        return self._role_in_claims(claims), flow.there

    def _role_in_claims(self, claims: Mapping[str, Any]) -> str:
        claimed = claims.get(self._settings.claim, ())
        values = {claimed} if isinstance(claimed, str) else set(map(str, claimed or ()))
        for name, admits in self._settings.roles.items():
            if values & set(admits):
                return name
        raise SignInRefusedError(
            "the provider knows you, but gives you no role here",
            todo="ask the daemon's owner to add one of your claims to page.oidc.roles",
        )

    async def _request_token(self, flow: OidcFlow, code: str) -> str:
        client, secret = self._settings.client_id, self._settings.client_secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.back,
            "client_id": client,
            "code_verifier": flow.verifier,
        }
        auth = None if secret is None else BasicAuth(quote_plus(client), quote_plus(secret))
        address = (await self._discover())["token_endpoint"]
        status, answer = await self._asked("POST", address, data=form, auth=auth)
        if status != 200 or not isinstance(answer.get("id_token"), str):
            raise _sign_in_error("the provider gave no token for its code")
        return str(answer["id_token"])

    async def _verified_claims(self, token: str) -> Mapping[str, Any]:
        """Return a token's claims, after checking its signature, issuer, audience and dates."""
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[name for name in ALGORITHMS if name == header.get("alg")],
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            refused = _sign_in_error("the provider's token is not good")
            refused.private = str(error)
            raise refused from None
        if claims.get("azp", self._settings.client_id) != self._settings.client_id:
            raise _sign_in_error("the provider's token was given to another client")
        return claims

    async def _key(self, name: str | None) -> Any:
        """Return the provider's key of that name; keys are read again where it is a new one."""
        for _ in range(2):
            keys = [] if self._keys is None else self._keys.keys
            for key in keys:
                if key.key_id == name or (name is None and len(keys) == 1):
                    return key
            if keys and self._clock() < self._looked + KEYS_S:
                break
            self._looked = self._clock()
            _, answer = await self._asked("GET", (await self._discover())["jwks_uri"])
            self._keys = self._jwt.PyJWKSet.from_dict(dict(answer))
        raise _sign_in_error("the provider has no key of that name")

    async def _discover(self) -> Mapping[str, Any]:
        if not self._known:
            issuer = self._settings.issuer
            address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            status, document = await self._asked("GET", address)
            needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            good = all(is_web_address(str(document.get(key, ""))) for key in needed)
            if status != 200 or document.get("issuer") != issuer or not good:
                raise ConfigError(
                    f"{issuer} names another issuer in its metadata, or gives no addresses",
                    todo=f"compare page.oidc.issuer with the metadata at {address}",
                    key="page.oidc.issuer",
                )
            self._known = document
        return self._known

    async def _asked(self, method: str, address: Any, **how: Any) -> tuple[int, dict[str, Any]]:
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=ANSWER_S)) as client,
                client.request(
                    method, URL(str(address), encoded=True), allow_redirects=False, **how
                ) as reply,
            ):
                content = b""
                async for part in reply.content.iter_any():
                    content += part
                    if len(content) > ANSWER_BYTES_MAX:
                        raise ValueError("the answer is too long")
                answer = json.loads(content)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise UnreachableError(
                "the sign-in's provider does not answer as an OpenID Connect provider",
                todo="try again; check that this machine can reach page.oidc.issuer",
                private=f"{address}: {type(error).__name__}",
            ) from None
        if not isinstance(answer, dict):
            raise _sign_in_error("the provider's answer is no object")
        return reply.status, answer


def _sign_in_error(what: str) -> SignInRefusedError:
    return SignInRefusedError(what, todo="sign in again")


def _random_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)
