"""Sums of candidates leave a host by one function, in a fixed order of what is done to them."""

import ast
from pathlib import Path

import fedboost
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.host.tree import HostTree, HostTreeBatch
from fedboost.encrypted.number.packed import PackedHostRows
from fedboost.encrypted.scheme.host_noise import HostNoise
from tests.support.federated import HOSTS, now
from tests.support.secureboost_jobs import made

# Of each name that sums pass on their way out, the modules that may use it.
MAY_USE = {
    "blind": {"encrypted/host/release.py", "encrypted/scheme/ciphers.py"},
    "blind_signed": {"encrypted/checks/gradient_check.py"},
    "blind_cells": {"encrypted/scheme/ciphers.py"},
    "CellRequest": {
        f"encrypted/{module}.py"
        for module in (
            "cells/adding",
            "cells/node_cells",
            "cells/request",
            "cells/tree_part",
            "host/release",
            "host/tree",
            "lattice/host",
            "number/packed",
            "scheme/ciphers",
        )
    },
    "of_node": {"encrypted/host/release.py"},
    "charge": {"encrypted/host/release.py"},
    "note_offered": {"encrypted/host/release.py"},
}


def uses(name):
    """The modules in which a function, method or class of that name is used."""
    root, found = Path(fedboost.__file__).parent, set()
    for folder in ("encrypted", "protocols/secureboost", "protocols/hybridtree"):
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if name in (getattr(node, "attr", None), getattr(node, "id", None)):
                    found.add(path.relative_to(root).as_posix())
    return found


def test_nothing_but_release_lets_sums_of_candidates_go():
    assert {name: uses(name) for name in MAY_USE} == MAY_USE


def test_every_node_is_grouped_and_noised_and_charged_and_recorded_before_it_is_blinded(
    monkeypatch,
):
    passed = []

    def noting(owner, name):
        own = getattr(owner, name)

        def noted(self, *args):
            passed.append(name)
            return own(self, *args)

        monkeypatch.setattr(owner, name, noted)

    noting(HostTree, "candidates")
    noting(HostNoise, "of_node")
    noting(Meter, "charge")
    noting(HostTreeBatch, "note_offered")
    noting(PackedHostRows, "blind")
    params = {"max_depth": 1, "n_estimators": 1, "host_noise": 0.5}
    room = made({**params, "encryption": {"scheme": "plain"}}, (2, 2), 200).room()
    now(room.until("divide_rows"))
    assert passed == ["candidates", "of_node", "charge", "note_offered", "blind"]
    own = room.state(HOSTS[0]).tree_batch
    assert own.offered.keys() == own.trees[0].released.keys() == {0}
