"""Frame of every page: head, navigation bar, foot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources

from fedboost import __version__
from fedboost.ground.errors import FedboostError
from fedboost.pages.sessions import BrowserSession
from fedboost.report.html import Html, join, tag

STATIC = "/static"
STATIC_FILES = {  # name of a file: the package that holds it, and its type
    "report.css": ("fedboost.report", "page.css", "text/css"),
    "pages.css": ("fedboost.pages", "static/pages.css", "text/css"),
    "pages.js": ("fedboost.pages", "static/pages.js", "text/javascript"),
    "icon.svg": ("fedboost.pages", "static/icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True)
class NavLink:
    """An entry of the navigation bar."""

    path: str
    words: str


@dataclass(frozen=True)
class Site:
    """The daemon of these pages."""

    role: str  # "coordinator" | "party"
    name: str
    user: str  # the user for whom they act
    links: Sequence[NavLink]


@dataclass(frozen=True)
class PageContent:
    """The content of one page."""

    title: str
    main: Sequence[object]
    place: str = ""  # the path of the bar's entry that it belongs to
    follows_s: float = 0.0  # seconds between two looks whether it has changed; 0: it does not
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def static_file(name: str) -> tuple[bytes, str] | None:
    """Return a file of ours with its type; None for an unknown name."""
    if name not in STATIC_FILES:
        return None
    package, file, kind = STATIC_FILES[name]
    return _file_content(package, file), kind


def whole_page(site: Site, shown: PageContent, session: BrowserSession | None) -> str:
    """Return the complete page for a browser."""
    main = tag("main", *shown.main, id="main", tabindex="-1")
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    lost = tag("div", "", id="lost", role="status", class_="lost")
    body = tag(
        "body",
        skip,
        _navigation_bar(site, shown, session),
        lost,
        main,
        _page_foot(site),
        data_now=f"{time.time():.3f}",
        data_follows=f"{shown.follows_s:g}" if shown.follows_s else None,
    )
    page = tag("html", _page_head(site, shown.title), body, lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def error_box(error: FedboostError, title: str = "This did not work") -> Html:
    """Show an error: what, where and what to do."""
    lines = error.lines()
    more = (tag("p", line) for line in lines[1:])
    return tag("div", tag("h2", f"{title}: {lines[0]}"), *more, role="alert", class_="trouble")


def _page_head(site: Site, title: str) -> Html:
    sheets = map(_static_path, ("report.css", "pages.css"))
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="robots", content="noindex"),
        tag("title", f"{title} – {site.name} – fedboost"),
        tag("link", rel="icon", href=_static_path("icon.svg"), type="image/svg+xml"),
        *(tag("link", rel="stylesheet", href=sheet) for sheet in sheets),
        tag("script", src=_static_path("pages.js"), defer=""),
    )


def _navigation_bar(site: Site, shown: PageContent, session: BrowserSession | None) -> Html:
    brand = tag(
        "a",
        tag("span", "fedboost", class_="mark"),
        " ",
        tag("span", site.name, class_="who"),
        " ",
        "" if site.role == site.name else tag("span", site.role, class_="role"),
        href="/",
        class_="brand",
    )
    if session is None:
        return tag("header", tag("div", brand, class_="inner"), class_="bar")
    links = [
        tag(
            "li",
            tag(
                "a",
                place.words,
                href=place.path,
                aria_current="page" if place.path == shown.place else None,
            ),
        )
        for place in site.links
    ]
    user = tag("span", session.user, class_="user", title="The user of this page")
    press = tag("button", "Sign out", type="submit", class_="plain")
    leave = post_form("/sign-out", session.csrf, user, press, class_="leave")
    around = tag("nav", tag("ul", *links), aria_label="Pages")
    return tag("header", tag("div", brand, around, leave, class_="inner"), class_="bar")


def post_form(action: str, csrf: str, *content: object, **attributes: str) -> Html:
    """Return a form with a token which shows that our own page sent it."""
    sent = hidden_field("csrf", csrf)
    return tag("form", sent, *content, method="post", action=action, **attributes)


def hidden_field(name: str, value: str) -> Html:
    """Return a hidden field of a form."""
    return tag("input", type="hidden", name=name, value=value)


def _page_foot(site: Site) -> Html:
    who = site.name if site.name == site.role else f"{site.role} {site.name}"
    words = f"fedboost {__version__} · {who} · times are UTC"
    return tag("footer", tag("p", join(words)))


def _static_path(name: str) -> str:
    """Return a file's path, which changes with its content."""
    package, file, _ = STATIC_FILES[name]
    return f"{STATIC}/{name}?{_content_version(package, file)}"


@cache
def _content_version(package: str, file: str) -> str:
    return sha256(_file_content(package, file)).hexdigest()[:12]


@cache
def _file_content(package: str, file: str) -> bytes:
    return resources.files(package).joinpath(file).read_bytes()
