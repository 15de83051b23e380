"""A manifest has one text, and nothing but that text is one."""

import hashlib
import json

import pytest

from fedboost.ground.errors import PeerError
from fedboost.ground.formats import WIRE_VERSION
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.store.outlines import encode_outline
from tests.support.federated import job_spec


def terms(**params):
    spec = job_spec("secureboost", ("bank", "telco"), params=params)
    members = [
        JobMember(name="bank", certificate="PEM 1"),
        JobMember(name="telco", certificate="PEM 2"),
    ]
    return Manifest(
        job="credit-1", coordinator="coord", submitter="ann", spec=spec, members=members
    )


TEXT = terms(learning_rate=0.1, n_estimators=3).encode()


def test_a_manifest_comes_back_as_it_was():
    again = manifest.decode_manifest(TEXT)
    assert again.encode() == TEXT
    assert again.spec.params == {"learning_rate": 0.1, "n_estimators": 3}
    assert [one.certificate for one in again.members] == ["PEM 1", "PEM 2"]
    assert manifest.manifest_sha256(TEXT) == hashlib.sha256(TEXT).digest()


def test_the_text_does_not_depend_on_the_order_of_keys():
    turned = dict(reversed(list(json.loads(TEXT)["spec"].items())))
    spec = parse_settings(JobSpec, turned)
    assert terms().model_copy(update={"spec": spec}).encode() == TEXT


def changed(**changes):
    return json.dumps({**json.loads(TEXT), **changes}, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"{",
        b"[" * 100_000,
        TEXT + b" ",
        b" " + TEXT,
        TEXT[:-1],
        TEXT.replace(b'","', b'", "', 1),
        TEXT.replace(b"0.1", b"0.10"),
        TEXT.replace(b"0.1", b"1e-1"),
        TEXT.replace(b"0.1", b"NaN"),
        TEXT.replace(b"0.1", b"Infinity"),
        TEXT.replace(b'"job":"credit-1"', b'"job":"credit-1","job":"credit-1"'),
        TEXT.replace(b'"job":"credit-1",', b""),
        json.dumps(json.loads(TEXT)).encode(),
        changed(job="../../etc").encode(),
        changed(job="").encode(),
        changed(job="x" * 81).encode(),
        changed(extra=1).encode(),
        changed(wire_version="1").encode(),
        changed(members=[{"name": "bank"}]).encode(),
        changed(spec={}).encode(),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_whatever_is_not_that_text_is_refused(text):
    assert text != TEXT
    with pytest.raises(PeerError):
        manifest.decode_manifest(text)


def test_a_manifest_larger_than_a_store_keeps_is_refused_unread():
    with pytest.raises(PeerError, match="a manifest has at most"):
        manifest.decode_manifest(b"[" * (manifest.MANIFEST_BYTES_MAX + 1))


def test_every_change_changes_the_hash():
    texts = {TEXT, terms().encode(), terms(n_estimators=4).encode(), changed(job="b").encode()}
    assert len({manifest.manifest_sha256(text) for text in texts}) == len(texts)


def test_an_outline_has_the_number_of_the_wire_and_1_where_none_was_kept():
    assert manifest.read_outline(encode_outline(TEXT)).wire_version == WIRE_VERSION
    older = json.loads(encode_outline(TEXT))
    del older["wire_version"]
    outline = manifest.read_outline(json.dumps(older).encode())
    assert (outline.wire_version, outline.is_spoken) == (1, False)
