"""Access control of pages: checks hosts, headers, sessions and forms before any handler.

It refuses a foreign Host (a name that an attacker points at this machine), forms sent by another
site, and every page except the sign-in without a session.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import quote

from aiohttp import web

from fedboost.ground.errors import (
    ConfigError,
    DataError,
    FedboostError,
    JobError,
    PolicyError,
    ProtocolError,
    StoreError,
    UnreachableError,
)
from fedboost.ground.settings import SETTINGS_BYTES_MAX
from fedboost.pages import frame
from fedboost.pages.frame import NavLink, PageContent, Site
from fedboost.pages.oidc import FLOW_S, OidcProvider
from fedboost.pages.sessions import BrowserSession, Sessions, SignInRefusedError, is_same_secret
from fedboost.pages.token import SIGN_IN, page_settings, read_token
from fedboost.report import page as report
from fedboost.report.html import join, tag
from fedboost.runtime.config.daemons import DaemonConfig
from fedboost.runtime.transport.hosts import OwnHosts
from fedboost.runtime.transport.identity import Peer

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OIDC, OIDC_BACK = f"{SIGN_IN}/oidc", f"{SIGN_IN}/oidc/back"  # to the provider, and back from it
_acting: ContextVar[str] = ContextVar("acting")  # user of the current request
BODY_BYTES_MAX = SETTINGS_BYTES_MAX + (64 << 10)  # a job file and the rest of its form
SESSION = web.RequestKey("session", BrowserSession)  # the session of a request
TICKING = re.compile(r'(<time class="(?:since|until)"[^>]*>)[^<]*')
PAGES_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": PAGES_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all a form of ours would have no Origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "fedboost",  # and not which versions of what
}
HTTP_STATUS: tuple[tuple[type[FedboostError], int], ...] = (
    (SignInRefusedError, 403),
    (StoreError, 500),
    (PolicyError, 403),
    (JobError, 404),
    (ProtocolError, 409),
    (UnreachableError, 502),
    (ConfigError, 422),
    (DataError, 422),
)


class PageGate:
    """Access control of one daemon's pages; its two middlewares stand before every handler."""

    def __init__(self, config: DaemonConfig, role: str, links: Sequence[NavLink]) -> None:
        """Set up the checks; `links` are the bar's entries. Raise ConfigError if the settings have
        no page.
        """
        page, lasts_s = page_settings(config), 3600 * page_settings(config).session_hours
        self.site = site = Site(role, config.name, page.user, links)
        self.sessions = Sessions(lambda: read_token(config.store), page.user, lasts_s)
        self._is_tls = page.allow_remote
        self._hosts = OwnHosts(page.listen, page.names)
        # Cookies know no ports: several daemons on one machine need several names.
        prefix = "__Host-" if self._is_tls else ""
        self._cookie = f"{prefix}fedboost-{site.role}-{site.name}"
        self._oidc = None if page.oidc is None else OidcProvider(page.oidc)
        self._open = (SIGN_IN,) if self._oidc is None else (SIGN_IN, OIDC, OIDC_BACK)
        self._lasts_s = int(lasts_s)

    def guarded_application(self) -> web.Application:
        """Return an application with access control, sign-in and static files."""
        app = web.Application(
            middlewares=[self._add_headers, self._admit_request], client_max_size=BODY_BYTES_MAX
        )
        app.add_routes(
            [
                web.get(SIGN_IN, self._sign_in_form),
                web.post(SIGN_IN, self._sign_in),
                web.post("/sign-out", self._sign_out),
                web.get(f"{frame.STATIC}/{{name}}", _static_response),
            ]
        )
        if self._oidc is not None:
            ways = web.get(OIDC, self._ask_provider), web.get(OIDC_BACK, self._return_from_provider)
            app.add_routes(ways)
        return app

    @property
    def user(self) -> Peer:
        """Return the user of the current request; outside of requests, the settings' user."""
        return Peer("user", _acting.get(self.site.user), fingerprint="", serial=0)

    def session(self, request: web.Request) -> BrowserSession:
        """Return the request's session; no request without one reaches a handler."""
        return request[SESSION]

    def answer(self, request: web.Request, shown: PageContent) -> web.Response:
        """Return a page, or only the status that it has not changed in the browser's copy."""
        text = frame.whole_page(self.site, shown, request.get(SESSION))
        still = TICKING.sub(r"\1", text.partition("<main")[2])  # the passing of time is no change
        mark = f'"{sha256(still.encode()).hexdigest()[:32]}"'
        if request.headers.get("If-None-Match") == mark and shown.status == 200:
            return web.Response(status=304, headers={"ETag": mark})
        return web.Response(
            text=text,
            content_type="text/html",
            charset="utf-8",
            status=shown.status,
            headers={"ETag": mark, **shown.headers},
        )

    def report(self, content: bytes) -> web.Response:
        """Return a job's report, a page that has its style inside."""
        headers = {"Content-Security-Policy": f"{report.POLICY}; frame-ancestors 'none'"}
        return web.Response(
            body=content, content_type="text/html", charset="utf-8", headers=headers
        )

    # In front of every handler

    @web.middleware
    async def _add_headers(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Add headers to every answer, and turn every failure into a page."""
        try:
            response = await handler(request)
        except web.HTTPException as answer:
            response = self._http_error_page(request, answer)
        except FedboostError as error:
            response = self._refusal_page(request, error)
        except Exception:
            log.exception("the page %s failed unexpectedly", request.path)
            unknown = FedboostError("the page failed unexpectedly", todo="see the daemon's log")
            response = self._refusal_page(request, unknown)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @web.middleware
    async def _admit_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests without a session, and forms that our own page has not sent."""
        if not self._hosts.is_own_host(request.headers.get("Host", "")):
            raise PolicyError(
                "this host name does not belong to the page",
                todo="use the address that the page listens on, or add the host to page.names",
                key="page.names",
            )
        if request.method not in ("GET", "HEAD", "POST"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD", "POST"])
        if request.method == "POST" and not self._is_own_form(request):
            raise PolicyError(
                "this form was not sent by the page itself", todo="open the page and try again"
            )
        if request.path in self._open or request.path.startswith(f"{frame.STATIC}/"):
            return await handler(request)
        session = self._find_session(request)
        if session is None:
            there = f"?next={quote(request.path_qs)}" if request.method == "GET" else ""
            raise web.HTTPSeeOther(f"{SIGN_IN}{there if request.path != '/' else ''}")
        request[SESSION] = session
        _acting.set(session.user)
        if request.method == "POST":
            form = await request.post()
            if not is_same_secret(str(form.get("csrf", "")), session.csrf):
                raise PolicyError("this form is out of date", todo="open the page again")
        return await handler(request)

    def _find_session(self, request: web.Request) -> BrowserSession | None:
        cookie = request.cookies.get(self._cookie, "")
        return self.sessions.find(cookie) if cookie else None

    def _is_own_form(self, request: web.Request) -> bool:
        """Return True if the browser says that our own page has sent the form."""
        scheme = "https" if self._is_tls else "http"
        origin, fetched = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        if origin is None:  # no browser, or a very old one: the form's own token decides
            return fetched in (None, "same-origin")
        ours = f"{scheme}://{request.headers.get('Host', '')}"
        return origin.lower() == ours.lower() and fetched in (None, "same-origin")

    # Signing in and out

    async def _sign_in_form(self, request: web.Request) -> web.Response:
        if self._find_session(request) is not None:
            raise web.HTTPSeeOther(_safe_target(request.query.get("next", "")))
        return self.answer(request, self._token_form(_safe_target(request.query.get("next", ""))))

    async def _sign_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        there = _safe_target(str(form.get("next", "")))
        try:
            given, source = str(form.get("token", "")).strip(), request.remote or ""
            cookie = self.sessions.sign_in(given, source)
        except SignInRefusedError as error:
            if not error.wait_s:  # guessing cannot fill our log
                log.warning("a sign-in to the page was refused: %s", error.what)
            return self.answer(request, self._token_form(there, error))
        response = web.Response(status=303, headers={"Location": there})
        self._set_cookie(response, self._cookie, cookie)
        return response

    def _set_cookie(self, response: web.Response, name: str, value: str) -> None:
        """Store a secret in a browser: the session, or the secret of a sign-in in progress."""
        is_session = name == self._cookie
        response.set_cookie(
            name,
            value,
            max_age=self._lasts_s if is_session else int(FLOW_S),
            httponly=True,
            samesite="Strict" if is_session else "Lax",
            secure=self._is_tls,
            path="/",
        )

    async def _ask_provider(self, request: web.Request) -> web.Response:
        """Send the browser to the provider."""
        there = _safe_target(request.query.get("next", ""))
        back = f"{'https' if self._is_tls else 'http'}://{request.headers['Host']}{OIDC_BACK}"
        assert self._oidc is not None
        address, binding = await self._oidc.begin(back, there)
        response = web.Response(status=303, headers={"Location": address})
        self._set_cookie(response, f"{self._cookie}-oidc", binding)
        return response

    async def _return_from_provider(self, request: web.Request) -> web.Response:
        """Sign in a user confirmed by the provider.

        The answer is a page of ours that continues: a request sent by another site carries no
        session.
        """
        assert self._oidc is not None
        binding = request.cookies.get(f"{self._cookie}-oidc", "")
        try:
            user, there = await self._oidc.end(request.query, binding)
        except SignInRefusedError as error:
            log.warning("a sign-in by the provider was refused: %s (%s)", error, error.private)
            return self.answer(request, self._token_form("/", error))
        link = tag("p", tag("a", "Go on", href=there))
        headers = {"Refresh": f"0; url={there}"}
        response = self.answer(request, PageContent("Signed in", [link], headers=headers))
        self._set_cookie(response, self._cookie, self.sessions.open(user))
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        self.sessions.sign_out(request.cookies.get(self._cookie, ""))
        response = web.Response(status=303, headers={"Location": SIGN_IN})
        response.del_cookie(self._cookie, path="/", secure=self._is_tls, httponly=True)
        return response

    def _token_form(self, there: str, error: SignInRefusedError | None = None) -> PageContent:
        """Show the form for the token; a script fills it from the fragment of the link."""
        command = f"fedboost {self.site.role} page --config FILE"
        form = tag(
            "form",
            tag("label", "Token", for_="token"),
            tag(
                "input",
                id="token",
                name="token",
                type="password",
                required="",
                autocomplete="off",
                autofocus="",
                spellcheck="false",
            ),
            frame.hidden_field("next", there),
            tag("button", "Sign in", type="submit", class_="strong-button"),
            method="post",
            action=SIGN_IN,
            id="sign-in",
        )
        hint = tag("p", "The link with the token is printed by ", tag("code", command), ".")
        if self._oidc is not None:
            address = f"{OIDC}?next={quote(there)}"
            by = tag("p", tag("a", "Sign in by your organisation", href=address))
            form = join((by, form))
        refusal = "" if error is None else frame.error_box(error, "Not signed in")
        wait = {} if error is None or not error.wait_s else {"Retry-After": str(error.wait_s)}
        title = tag("h1", f"Sign in to {self.site.name}")
        status = 200 if error is None else 429 if error.wait_s else 403
        card = tag("div", title, refusal, form, hint, class_="sign-in")
        return PageContent("Sign in", [card], status=status, headers=wait)

    # Failures

    def _refusal_page(self, request: web.Request, error: FedboostError) -> web.Response:
        status = next((code for kind, code in HTTP_STATUS if isinstance(error, kind)), 500)
        main = [tag("h1", "Not possible"), frame.error_box(error), _link_to_jobs()]
        return self.answer(request, PageContent("Not possible", main, status=status))

    def _http_error_page(
        self, request: web.Request, answer: web.HTTPException
    ) -> web.StreamResponse:
        if answer.status < HTTPStatus.BAD_REQUEST:  # a way to somewhere else
            return web.Response(
                status=answer.status, headers={"Location": answer.headers["Location"]}
            )
        words = HTTPStatus(answer.status).phrase
        main = [tag("h1", words), tag("p", f"{request.path}: {words.lower()}."), _link_to_jobs()]
        return self.answer(request, PageContent(words, main, status=answer.status))


def _link_to_jobs() -> object:
    return tag("p", tag("a", "To the jobs", href="/"))


def _safe_target(path: str) -> str:
    """Return a path of this page to go to; its first page for any other address."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own and not path.startswith(SIGN_IN) else "/"


async def _static_response(request: web.Request) -> web.Response:
    file = frame.static_file(request.match_info["name"])
    if file is None:
        raise web.HTTPNotFound
    content, kind = file
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=kept)
