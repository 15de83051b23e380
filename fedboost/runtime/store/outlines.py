"""What listings show of a job's manifest: a few names, kept beside the job so that none is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def outlined(text: bytes) -> bytes:
    """Return the outline of a manifest: JSON of the same form with its hash and what names it.

    Of a text that is no manifest the hash alone.
    """
    kept: dict[str, Any] = {"sha256": hashlib.sha256(text).hexdigest()}
    try:
        raw = json.loads(text)
        spec = raw["spec"]
        kept |= {name: raw[name] for name in ("coordinator", "submitter", "version")}
        kept["members"] = [{"name": member["name"]} for member in raw["members"]]
        encryption = spec.get("params", {}).get("encryption")
        scheme = encryption.get("scheme") if isinstance(encryption, Mapping) else None
        params = {"encryption": {"scheme": scheme}} if isinstance(scheme, str) else {}
        kept["spec"] = {"protocol": spec["protocol"], "params": params}
        if raw.get("scheme"):
            kept["scheme"] = raw["scheme"]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return json.dumps(kept, sort_keys=True).encode()


def sha256_of(outline: bytes) -> bytes:
    """Return the hash of the manifest whose outline it is."""
    return bytes.fromhex(json.loads(outline)["sha256"])
