"""A tiny conversation of each protocol, the same in every run: same tables, same secrets."""

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.crypto import id_digests, plain, residues
from fedboost.crypto.intersection import Exponent
from fedboost.crypto.limbs import limbs_of, rows_of
from fedboost.data.frame import Frame
from fedboost.flow import EVERYBODY, MODEL, Artefact
from fedboost.runtime.config.policy import Policy
from tests.support import oprf_pairs
from tests.support.federated import (
    GUEST,
    HOSTS,
    PLAIN,
    SMALL,
    Alter,
    Room,
    frame_of,
    now,
    room_for,
)

PARTIES = (GUEST, *HOSTS[:2])
ROWS = 24
CITIES = ("Aachen", "Bonn", "Chur", "Dresden", "Ulm")  # five, of which four get a bin
# Of so few rows gradients need all their bits for nodes to divide; `lattice` shows the default.
PARAMS = {
    **{**PLAIN, "n_estimators": 2, "max_depth": 2, "max_bin": 4, "min_child_weight": 0.5},
    "precision_bits": None,
}


NAMES = (
    *("echo", "align", "align_pairs", "secureboost", "forest"),
    *("align_tags", "align_hints", "align_pairs_tags"),
    *("federboost_vertical", "predict", "warm_start"),
    *("federboost_horizontal", "dropout"),
    *("gbun", "gbun_dropout", "hybridtree", "lattice"),
    *("hybridtree_lattice", "checked", "hybridtree_checked"),
    *("hybridtree_unscored", "predict_hybrid", "predict_unscored"),
)
# The conversations of predictions: whose model they use.
MODELS = {
    "predict": "secureboost",
    "predict_hybrid": "hybridtree",
    "predict_unscored": "hybridtree_unscored",
}


def named(name: str, alter: Alter | None = None) -> Room:
    """The conversation of that name; a prediction's model is trained once a run."""
    trained = [_model(MODELS[name])] if name in MODELS else []
    room: Room = globals()[name](*trained, alter)
    return room


@functools.cache
def _model(name: str) -> dict[str, Artefact]:
    return now(named(name).walk())


def tables(rows: int = ROWS) -> dict[str, Any]:
    """Frames of the same ids in the same order; a few values are missing.

    The last column of the first host holds categories.
    """
    draw = np.random.default_rng(1)
    ids = [b"%0*d" % (len(str(rows - 1)), i) for i in range(rows)]
    frames, pull = {}, np.zeros(rows)
    for k, party in enumerate(PARTIES):
        values = np.round(draw.normal(size=(rows, 1 + k)), 1).astype(np.float32)
        pull += (1 + k) * values[:, 0]
        values[k + 1 :: 7, 0] = np.nan
        frames[party] = (ids, values)
    cities = draw.integers(0, len(CITIES), rows).astype(np.float32)
    pull += np.array([2.0, -3.0, 1.0, 0.0, -1.0])[cities.astype(np.int64)]
    cities[4::9] = np.nan
    frames[HOSTS[0]][1][:, -1] = cities
    label = (pull > 0).astype(np.float64)
    made = {
        party: frame_of(own, values, label if party == GUEST else None)
        for party, (own, values) in frames.items()
    }
    made[HOSTS[0]] = replace(made[HOSTS[0]], categories={"c1": CITIES})
    return made


def echo(alter: Alter | None = None) -> Room:
    """Two rounds in three parts."""
    return room_for("echo", tables(), {"rounds": 2, "parts": 3, "numbers": 5}, alter=alter)


def align(alter: Alter | None = None) -> Room:
    """Each party has rows of its own in its own order; 12 are in common."""
    return room_for("align", _sets(6), alter=alter)


def align_pairs(alter: Alter | None = None) -> Room:
    """The guest shares 14 of its 20 rows with one host, 16 with the other; three have neither."""
    return room_for("align-pairs", _sets(8), alter=alter)


def align_tags(alter: Alter | None = None) -> Room:
    """A guest and one host by an oblivious function, behind a sample of their ids."""
    two = {party: frame for party, frame in _sets(6).items() if party != PARTIES[2]}
    return _oblivious("align", two, alter)


def align_hints(alter: Alter | None = None) -> Room:
    """The same rows as in `align`, of two hosts."""
    return _oblivious("align", _sets(6), alter)


def align_pairs_tags(alter: Alter | None = None) -> Room:
    """The same rows as in `align_pairs`."""
    return _oblivious("align-pairs", _sets(8), alter)


def _sets(end: int) -> dict[str, Frame]:
    """Ids of three parties; of the last one every second up to `end`, and 22 more."""
    orders = (range(20), range(26, 5, -1), [*range(0, end, 2), *range(8, 30)])
    return {
        party: frame_of([b"%02d" % i for i in order], np.zeros((len(order), 1), np.float32))
        for party, order in zip(PARTIES, orders, strict=True)
    }


def _oblivious(protocol: str, frames: dict[str, Frame], alter: Alter | None) -> Room:
    oprf_pairs.remember_transfers()
    limits = SMALL.model_copy(update={"intersection_min": 5})
    return room_for(protocol, frames, {"method": "oprf"}, limits=limits, alter=alter)


def secureboost(alter: Alter | None = None) -> Room:
    """Two trees of two layers on 18 rows, 6 are held out."""
    return room_for("secureboost", tables(), PARAMS, held=0.25, alter=alter)


def lattice(alter: Alter | None = None, **more: Any) -> Room:
    """The same under the lattice scheme: nonces first, and answers in parts."""
    own = {**PARAMS, "encryption": {"scheme": "lattice"}, "precision_bits": BITS_ENCRYPTED, **more}
    return room_for("secureboost", tables(), own, held=0.25, alter=alter)


def checked(alter: Alter | None = None) -> Room:
    """One tree of one layer on 360 rows, whose gradients the hosts check."""
    own = {**PARAMS, "n_estimators": 1, "max_depth": 1, "gradient_check": True}
    return room_for("secureboost", tables(360), own, held=0.0, alter=alter)


def hybridtree_checked(alter: Alter | None = None) -> Room:
    """The same of 600 rows, of which hosts have 400 each."""
    own = {"n_estimators": 1, "guest_depth": 1, "host_depth": 1, "gradient_check": True}
    return hybridtree(alter, 600, (range(400), range(200, 600)), **own)


def forest(alter: Alter | None = None) -> Room:
    """A forest of three trees on samples, then one of one tree on all rows."""
    moving = {"n_trees": [3, 1], "subsample": [0.4, 1.0]}
    params = {**PARAMS, "seed": 10, "forest": {"dynamic": moving}}
    return room_for("secureboost", tables(), params, held=0.25, alter=alter)


def hybridtree(
    alter: Alter | None = None,
    n_rows: int = 36,
    of_hosts: tuple[range, ...] = (range(15), range(5, 32)),
    **more: Any,
) -> Room:
    """Two trees: two layers on the guest's 36 rows, and up to two of each host's below them.

    The hosts have 15 and 27 of these rows and share ten; four of them nobody has.
    """
    frames, held = tables(n_rows), {}
    for host, rows in zip(PARTIES[1:], of_hosts, strict=True):
        frames[host] = frames[host].take(rows)
        held[f"with_{host}"] = np.array(rows, np.int64)
    pairs = Artefact(arrays={"rows": np.arange(n_rows), **held})
    own = {k: v for k, v in PARAMS.items() if k != "max_depth"}
    own |= {"guest_depth": 2, "host_depth": 2, "min_child_weight": 0.2}
    artefacts = {GUEST: {"align-pairs": pairs}}
    return room_for(
        "hybridtree", frames, {**own, **more}, held=0.25, artefacts=artefacts, alter=alter
    )


def hybridtree_lattice(alter: Alter | None = None) -> Room:
    """The same under the lattice scheme."""
    return hybridtree(alter, encryption={"scheme": "lattice"}, precision_bits=BITS_ENCRYPTED)


def hybridtree_unscored(alter: Alter | None = None, **more: Any) -> Room:
    """The same rows; hosts cut by themselves, with two rows at least on either side."""
    contexts = hybridtree().contexts
    own = {k: v for k, v in PARAMS.items() if k not in ("max_depth", "min_child_weight")}
    own |= {"guest_depth": 2, "host_depth": 2, "split": "unscored", **more}
    frames = {
        party: context.frame for party, context in contexts.items() if context.frame is not None
    }
    artefacts = {party: context.artefacts for party, context in contexts.items()}
    limits = Policy(group_rows_min=2, gradient_bits_max=64)
    return room_for(
        "hybridtree", frames, own, held=0.25, artefacts=artefacts, limits=limits, alter=alter
    )


def predict_hybrid(model: dict[str, Artefact], alter: Alter | None = None, **more: Any) -> Room:
    """All 36 rows, in two batches, with a model of `hybridtree`."""
    contexts = hybridtree().contexts
    facts = {"hosts": list(PARTIES[1:])}  # as a model's store adds them
    artefacts = {
        party: {**context.artefacts, MODEL: replace(model[party], facts=model[party].facts | facts)}
        for party, context in contexts.items()
    }
    frames = {p: replace(s.frame, label=None) for p, s in contexts.items() if s.frame is not None}
    split = model[GUEST].facts["split"]
    params = {"model": "job-1", "split": split, "batch_rows": 20, **more}
    return room_for("predict-hybrid", frames, params, artefacts=artefacts, alter=alter)


def predict_unscored(model: dict[str, Artefact], alter: Alter | None = None) -> Room:
    """The same with a model of `hybridtree_unscored`."""
    return predict_hybrid(model, alter)


def federboost_vertical(alter: Alter | None = None) -> Room:
    """The same with noisy buckets, of a table under whose noise both of telco's columns divide."""
    params = {k: v for k, v in PARAMS.items() if k not in PLAIN} | {"buckets": 4}
    return room_for("federboost-vertical", tables(), params, held=0.25, alter=alter, dataset="tiny")


def shares_of_rows() -> dict[str, Any]:
    """The same columns of other rows, the last ones in another order; c1 holds categories."""
    draw = np.random.default_rng(2)
    made = {}
    for k, party in enumerate(PARTIES):
        ids = [b"%s %02d" % (party.encode(), i) for i in range(ROWS + k)]
        values = np.round(draw.normal(size=(len(ids), 2)), 1).astype(np.float32)
        values[k::7, 0] = np.nan
        values[:, 1] = draw.integers(0, len(CITIES), len(ids))
        label = (np.nan_to_num(values[:, 0]) + (values[:, 1] == k) > 0.3).astype(np.float64)
        frame = replace(frame_of(ids, values, label), categories={"c1": CITIES})
        made[party] = frame
    last = made[PARTIES[-1]]
    turned = np.asfortranarray(last.values[:, ::-1])
    made[PARTIES[-1]] = replace(last, values=turned, columns=last.columns[::-1])
    return made


def federboost_horizontal(alter: Alter | None = None, **more: Any) -> Room:
    """Two trees of two layers on rows of three parties; somebody else adds up."""
    own = {k: v for k, v in PARAMS.items() if k not in PLAIN} | {"max_bin": 5}
    own |= {"domains": {"c1": list(CITIES)}, "quantile_tolerance": 4, "eval_metric": "logloss"}
    params, frames = {**own, **more}, shares_of_rows()
    return room_for(
        "federboost-horizontal", frames, params, held=0.25, alter=alter, aggregator="sum"
    )


class Doubting(Room):
    """A coordinator that believes a host was lost once a second round has its first sum."""

    @property
    def is_quick(self) -> bool:
        """Each tree is walked step by step."""
        return False

    @property
    def present(self) -> tuple[str, ...]:
        """Nobody is lost in the first round."""
        given = sum(one.envelope.step in ("sum_histograms", "sum_outputs") for one in self.posted)
        return self.table.hosts if given > len(self.table.of(EVERYBODY)) else ()


def dropout(alter: Alter | None = None) -> Room:
    """The same in a job that would go on without a host, with two trees of one layer."""
    few = {"n_estimators": 2, "max_depth": 1, "quantile_tolerance": 16}
    return _doubting(federboost_horizontal(alter, dropout="continue", **few))


def _doubting(room: Room) -> Room:
    return Doubting(room.protocol, room.contexts, room.wait_s, room.alter)


def gbun(alter: Alter | None = None, **more: Any) -> Room:
    """Two rounds of networks on the same rows, whose categories are numbers to them."""
    own = {"n_estimators": 2, "outputs": 4, "eval_metric": "logloss"}
    own |= {"max_bin": 2, "quantile_tolerance": 4}
    frames = {name: replace(one, categories={}) for name, one in shares_of_rows().items()}
    return room_for("gbun", frames, {**own, **more}, held=0.25, alter=alter, aggregator="sum")


def gbun_dropout(alter: Alter | None = None) -> Room:
    """Two rounds of the same in a job that would go on without a host."""
    return _doubting(gbun(alter, dropout="continue", n_estimators=2, columns="standard"))


def predict(model: dict[str, Artefact], alter: Alter | None = None) -> Room:
    """All rows, in two batches, with a model of `secureboost`."""
    params = {"model": "job-1", "batch_rows": 16}
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    return room_for("predict", tables(), params, artefacts=artefacts, alter=alter)


def warm_start(alter: Alter | None = None) -> Room:
    """One tree more, behind the two of `secureboost`."""
    model = now(secureboost().walk())
    params = {"model": "job-1", "output_margin": True}
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    margins = now(room_for("predict", tables(), params, artefacts=artefacts).walk())
    both = {party: {MODEL: model[party], "predict": margins[party]} for party in PARTIES}
    more = {**PARAMS, "n_estimators": 1, "warm_start": "job-1"}
    return room_for("secureboost", tables(), more, artefacts=both, held=0.25, alter=alter)


def fix_randomness(patch: pytest.MonkeyPatch) -> None:
    """What comes from the operating system comes from a counter instead."""
    drawn = itertools.count()

    def exponent() -> Exponent:
        return Exponent.from_seed(next(drawn).to_bytes(32, "big"))

    class Fixed:
        """Stands for the operating system's randomness."""

        urandom = staticmethod(lambda count: bytes(range(count)))

    def headroom(bits: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = [1 + (1 << 70) % ((1 << count) - 1) for count in bits.tolist()]
        return limbs_of(rows_of(numbers, plain.PLAIN_WIDTH))

    patch.setattr(residues, "_draw_blinding", headroom)
    patch.setattr(id_digests, "os", Fixed)
    patch.setattr(Exponent, "random", exponent)
