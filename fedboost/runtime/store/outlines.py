"""Outline of a job's manifest for lists: a few names, stored beside the job so that no manifest is
read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def encode_outline(text: bytes) -> bytes:
    """Return the outline of a manifest: JSON of the same form with its hash and its names.

    Return only the hash for a text that is no manifest.
    """
    kept: dict[str, Any] = {"sha256": hashlib.sha256(text).hexdigest()}
    try:
        raw = json.loads(text)
        spec = raw["spec"]
        kept |= {
            name: raw[name] for name in ("coordinator", "submitter", "version", "wire_version")
        }
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
    """Return the hash of the manifest behind an outline."""
    return bytes.fromhex(json.loads(outline)["sha256"])
