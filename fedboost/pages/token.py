"""The token by which a daemon's owner signs in to its page, drawn once and kept in the store."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedboost.ground.disk import SECRET_MODE, make_folder, on_disk, read_file, write_file
from fedboost.ground.errors import ConfigError, StoreError
from fedboost.runtime.config.daemons import DaemonConfig
from fedboost.runtime.config.page import Page
from fedboost.runtime.transport.addresses import split_address
from fedboost.runtime.transport.hosts import ANYWHERE

SIGN_IN_FILE = "page-token"  # in the store
TOKEN_BYTES = 32  # from the operating system
SIGN_IN = "/sign-in"


def read_token(store: Path) -> str:
    """Return the token in a store's folder; draw it if there is none yet.

    Raise StoreError if other users could read it, or if the disk refuses.
    """
    path = store / SIGN_IN_FILE
    if not path.exists():
        _draw_token(path, anew=False)
    with on_disk(path):
        if path.stat().st_mode & 0o077:
            raise StoreError(
                "the page's token could be read by others",
                todo="draw another one: fedboost party page --new, or coordinator page --new",
                private=str(path),
                file=path.name,
            )
    return read_file(path).decode("ascii", "replace").strip()


def renew_token(store: Path) -> str:
    """Replace the token; all signed-in users must sign in again."""
    _draw_token(store / SIGN_IN_FILE, anew=True)
    return read_token(store)


def page_address(config: DaemonConfig) -> str:
    """Return the page's address for a browser on this machine: ``http://127.0.0.1:7180``."""
    page = page_settings(config)
    host, port = split_address(page.listen)
    host = next(iter(page.names), "localhost") if host in ANYWHERE else host
    written = f"[{host}]" if ":" in host else host
    return f"{'https' if page.allow_remote else 'http'}://{written}:{port}"


def sign_in_url(config: DaemonConfig, secret: str) -> str:
    """Return a link that signs its owner in; the token is in the fragment, which browsers never
    send.
    """
    return f"{page_address(config)}{SIGN_IN}#token={secret}"


def page_settings(config: DaemonConfig) -> Page:
    """Return the settings of a daemon's page; raise ConfigError if it has none."""
    if config.page is None:
        raise ConfigError(
            f"the settings of {config.name} have no page",
            todo="add  page: {listen: 127.0.0.1:7180, user: NAME}  and start the daemon again",
            key="page",
        )
    return config.page


def _draw_token(path: Path, *, anew: bool) -> None:
    """Write a new token; unless `anew`, a token drawn by another process in the meantime stays."""
    make_folder(path.parent)
    drawn = path.with_name(f"{path.name}.{os.getpid()}")
    write_file(drawn, secrets.token_urlsafe(TOKEN_BYTES).encode(), SECRET_MODE)
    with on_disk(path):
        try:
            if anew:
                drawn.replace(path)
            else:
                os.link(drawn, path)
        except FileExistsError:
            pass
        finally:
            drawn.unlink(missing_ok=True)
