"""S3, and storages that speak it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from fedboost.data.kinds.kind import Storage

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec

S3_CONNECT_S = 10.0


def _file_system(source: SourceSpec, place: str, options: dict[str, str]) -> tuple[Any, str]:
    import pyarrow.fs as pafs

    return pafs.S3FileSystem(connect_timeout=S3_CONNECT_S, **options, **_key_options(source)), place


def _key_options(source: SourceSpec) -> dict[str, str]:
    from fedboost.data.folders import key_texts

    return {} if source.keys is None else key_texts(source.keys)


def delta_options(source: SourceSpec) -> dict[str, str]:
    """Return the options and keys of an S3 path under the names that `deltalake` uses."""
    options = dict(parse_qsl(urlsplit(source.path or "").query))
    named = {"aws_region": options.get("region")}
    if "endpoint_override" in options:
        scheme = options.get("scheme", "https")
        named["aws_endpoint"] = f"{scheme}://{options['endpoint_override']}"
        named["aws_allow_http"] = str(scheme == "http").lower()
    keys = _key_options(source)
    named |= {
        "aws_access_key_id": keys.get("access_key"),
        "aws_secret_access_key": keys.get("secret_key"),
        "aws_session_token": keys.get("session_token"),
    }
    return {"max_retries": "3"} | {name: text for name, text in named.items() if text is not None}


S3_STORAGE = Storage(
    scheme="s3",
    is_bucket=True,
    opened=_file_system,
    options=("region", "scheme", "endpoint_override"),
    settings=frozenset({"keys"}),
    delta_options=delta_options,
)
