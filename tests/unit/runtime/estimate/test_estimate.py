"""What jobs are counted to need, what machines take for it, and what comes of the two."""

import json
import multiprocessing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import estimate as benchmark
from fedboost import needs, protocols
from fedboost.cli import estimate as command
from fedboost.core import local
from fedboost.core.params import TreeParams
from fedboost.data.sources import SourceSpec
from fedboost.encrypted import needs as ciphers
from fedboost.errors import ConfigError
from fedboost.needs import GrowthCounts, Scene
from fedboost.runtime.estimate import price_lists, prices, scenes
from fedboost.runtime.estimate.estimate import Placement, estimate
from fedboost.runtime.estimate.prices import Prices
from fedboost.runtime.estimate.scenes import Said, from_tables, from_words
from fedboost.settings import parse
from tests.support import small_jobs

TRAINING = ("secureboost", "federboost-vertical", "federboost-horizontal", "gbun", "hybridtree")
TWO = Said({"bank": 10, "telco": 10}, {"bank": 1, "telco": 1})
SAID = Said(dict.fromkeys(small_jobs.PARTIES, 1000), dict.fromkeys(small_jobs.PARTIES, 4))


class Flat(dict[str, float]):
    """Prices of which every one is known."""

    def __missing__(self, name):
        return 1e6 if name.startswith("memory") else 1e-6


class Known(Prices):
    """A machine that takes a microsecond for anything."""

    def of(self, names, say=None):
        """See `Prices`."""
        return Flat()


def flat():
    """The same, as a machine has them."""
    return Known()


def job(name="secureboost", **params):
    """A toy job."""
    return small_jobs.spec(name, **params)


def scene(**changes):
    """A guest and a host with 10 columns each of 1,000 rows."""
    own = {
        "guest": "bank",
        "hosts": ("telco",),
        "rows": {"bank": 1000, "telco": 1000},
        "columns": {"bank": 10, "telco": 10},
        "bins": {"bank": 16.0, "telco": 16.0},
        "missing": {"bank": 0.0, "telco": 0.0},
        "common": 1000,
        "shared": {"telco": 1000},
        "held_out": 0.0,
        "growth": GrowthCounts((1.0, 2.0), (1.0, 0.25)),
    }
    return Scene(**{**own, **changes})


def counted(name, params, **changes):
    """What a protocol counts."""
    protocol = protocols.named(name)
    assert protocol.needs is not None
    return protocol.needs(parse(protocol.params, params), scene(**changes))


def total(found, party, primitive):
    """How often a party does something in the whole job."""
    return sum(p.times * p.works.get(party, {}).get(primitive, 0.0) for p in found.phases)


def octets(found, link):
    """Bytes on a link in the whole job."""
    return sum(p.times * p.sent.get(link, 0.0) for p in found.phases)


TREES = {"n_estimators": 5, "max_depth": 2, "max_bin": 16}


def test_every_training_protocol_is_counted():
    assert all(protocols.named(name).needs is not None for name in TRAINING)


def test_encryption_is_counted_once_a_row_and_tree():
    found = counted("secureboost", TREES)
    assert total(found, "bank", "paillier-2048: encrypt") == 5 * 1000
    assert total(found, "telco", "paillier-2048: receive") == 5 * 1000
    # All rows at the root, a quarter of them below it, in each of ten columns.
    added = total(found, "telco", "paillier-2048: add")
    assert added + total(found, "telco", "paillier-2048: add, few rows") == 5 * 10 * 1250
    assert octets(found, ("bank", "telco")) == pytest.approx(5 * 1000 * 512, rel=0.01)


def test_candidates_are_answered_and_read_one_for_each_bin_but_the_last():
    found = counted("secureboost", TREES)
    assert total(found, "telco", "paillier-2048: answer") == pytest.approx(5 * 3 * 150, rel=0.2)


def test_goss_encrypts_the_rows_that_it_draws():
    goss = {"goss": {"top_rate": 0.2, "other_rate": 0.1}}
    found = counted("secureboost", {**TREES, **goss})
    assert total(found, "bank", "paillier-2048: encrypt") == pytest.approx(5 * 300)


def test_mix_encrypts_in_the_hosts_trees_alone():
    found = counted("secureboost", {**TREES, "n_estimators": 6, "mode": "mix"})
    assert total(found, "bank", "paillier-2048: encrypt") == 3 * 1000


def test_a_tree_per_class_is_counted_for_each_class():
    classes = {"objective": "multi:softprob", "num_class": 3}
    found = counted("secureboost", {**TREES, **classes})
    assert total(found, "bank", "paillier-2048: encrypt") == 3 * 5 * 1000
    vectors = counted("secureboost", {**TREES, **classes, "multi_output": True})
    assert total(vectors, "bank", "paillier-2048: encrypt") == 5 * 1000


def test_a_forest_encrypts_the_rows_of_any_of_its_trees():
    forest = {"forest": {"n_trees": 2, "subsample": 0.5}}
    found = counted("secureboost", {**TREES, **forest})
    assert total(found, "bank", "paillier-2048: encrypt") == pytest.approx(5 * 750)


def test_without_packing_a_row_takes_two_ciphertexts():
    found = counted("secureboost", {**TREES, "gh_packing": False})
    assert total(found, "bank", "paillier-2048: encrypt") == 5 * 2 * 1000


def test_answers_of_a_lattice_are_as_large_as_its_polynomials():
    lattice = {"encryption": {"scheme": "lattice"}}
    modular, ring = (counted("secureboost", {**TREES, **own}) for own in ({}, lattice))
    link = ("telco", "bank")
    assert octets(ring, link) > 100 * octets(modular, link)
    assert ring.memory["telco"] > modular.memory["telco"]


def test_every_party_moves_every_set_of_ids_once():
    found = counted("align", {})
    assert total(found, "bank", needs.MULTIPLY) == 2000
    assert total(found, "telco", needs.MULTIPLY) == 2000
    assert octets(found, ("bank", "telco")) == 32 * 2000 + 16 * 1000


def test_buckets_travel_once_in_as_few_bits_as_they_need():
    found = counted("federboost-vertical", {**TREES, "buckets": 16})
    assert octets(found, ("telco", "bank")) == pytest.approx(1000 * 10 * 4 / 8, rel=0.1)
    again = counted("federboost-vertical", {**TREES, "reuse": "a-job"})
    assert octets(again, ("telco", "bank")) == 0


def test_equations_of_a_network_are_as_many_words_as_they_say():
    found = counted("gbun", {"n_estimators": 2, "outputs": 64}, aggregator="bank")
    words = 2 * 64 + 1 + 64 * 65 / 2 + 64
    assert octets(found, ("telco", "bank")) == pytest.approx(8 * 2 * words + 2 * 32768, rel=0.1)


def test_rehearsed_trees_open_the_nodes_that_the_pooled_trees_have(tmp_path):
    tables = small_jobs.tables("secureboost")
    spec = job()
    setting = from_tables(spec, small_jobs.written(tmp_path, tables))
    growth = setting.scene.growth
    assert growth is not None
    assert setting.scene.common == 300
    assert len(growth.opened) == 3
    assert growth.opened[0] == growth.added[0] == 1.0
    assert all(0.0 < share <= 0.5 for share in growth.added[1:])
    draw = np.random.default_rng(1)
    values = draw.normal(size=(240, 12)).astype(np.float32)
    trees = local.train(
        local.TrainingTable(values, (values[:, 0] > 0).astype(np.float64)),
        TreeParams(n_estimators=1, max_depth=3, max_bin=16),
    )
    assert growth.opened[1] <= len(trees.rounds[0][0].node)


def test_rows_in_common_are_those_of_the_tables(tmp_path):
    tables = small_jobs.tables("secureboost")
    tables["shop"] = tables["shop"].slice(0, 100)
    setting = from_tables(job(), small_jobs.written(tmp_path, tables))
    assert setting.scene.common == 100
    assert setting.scene.shared == {"telco": 300, "shop": 100}


@pytest.mark.parametrize("name", TRAINING)
def test_an_estimate_says_what_a_result_says(name):
    spec = job(name)
    found = estimate(spec, from_words(spec, SAID), Placement(2), flat()).said()
    assert found["cpu_seconds"].keys() == set(small_jobs.PARTIES)
    assert found["memory_peak_bytes"].keys() == set(small_jobs.PARTIES)
    assert found["seconds"]["total"] >= found["seconds"]["train"] > 0.0
    assert ("align" in found["seconds"]) == (small_jobs.TOYS[name].rows != "own")
    assert sum(found["bytes"].values()) > 0
    assert found["assumed"]
    json.dumps(found, allow_nan=False)


def test_a_job_on_an_earlier_alignment_has_no_stage_for_it():
    spec = job().model_copy(update={"alignment": "a-job"})
    found = estimate(spec, from_words(spec, SAID), Placement(2), flat())
    assert "align" not in found.seconds


def test_on_one_machine_parties_share_its_cores_and_apart_they_do_not():
    spec = job()
    setting = from_words(spec, SAID)
    here = estimate(spec, setting, Placement(1), flat())
    apart = estimate(spec, setting, Placement(1, apart=True), flat())
    assert here.seconds["train"] > apart.seconds["train"]
    assert here.cpu_seconds == apart.cpu_seconds


def test_a_slow_link_is_waited_for():
    spec = job()
    setting = from_words(spec, SAID)
    fast = estimate(spec, setting, Placement(1, apart=True, bytes_per_s=1e9), flat())
    slow = estimate(spec, setting, Placement(1, apart=True, bytes_per_s=1e4), flat())
    late = estimate(spec, setting, Placement(1, apart=True, bytes_per_s=1e9, latency_s=0.1), flat())
    octets = max(slow.bytes.values())
    assert slow.seconds["total"] - fast.seconds["total"] >= octets / 1e4 * 0.9
    assert late.seconds["train"] - fast.seconds["train"] > 3 * 3 * 0.2


def test_what_is_not_said_is_asked_for():
    with pytest.raises(ConfigError, match="how many columns shop has"):
        from_words(job(), Said(SAID.rows, {"bank": 1, "telco": 1}))
    with pytest.raises(ConfigError, match="how many rows bank has"):
        from_words(job(), Said({}, SAID.columns))


def test_a_protocol_that_nobody_has_counted_is_refused():
    echo = {
        "name": "e",
        "protocol": "echo",
        "parties": {"guest": "bank", "hosts": ["telco"]},
        "data": {"bank": {"dataset": "d"}, "telco": {"dataset": "d"}},
    }
    spec = parse(type(job()), echo)
    with pytest.raises(ConfigError, match="nobody has counted"):
        estimate(spec, from_words(spec, TWO), Placement(1), flat())


def test_tables_of_strangers_are_refused():
    with pytest.raises(ConfigError, match="which has no table in the job"):
        from_words(job(), Said({**SAID.rows, "bnak": 1}, SAID.columns))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("100MB/s,20ms", (100e6, 0.02)),
        ("1Gbit/s", (125e6, 0.0)),
        ("5kB/s,1.5s", (5e3, 1.5)),
    ],
)
def test_a_link_is_a_speed_and_a_delay(text, found):
    place = command._place(text, 2)
    assert (place.bytes_per_s, place.latency_s) == found
    assert place.apart


@pytest.mark.parametrize("text", ["fast", "100", "100MB/s,soon", "100MB,20ms"])
def test_other_links_are_refused(text):
    with pytest.raises(ConfigError, match="no speed and delay"):
        command._place(text, 2)


def test_prices_are_kept_for_this_machine_and_measured_once(tmp_path):
    file = tmp_path / "fedboost" / "prices.json"
    first = Prices.load(file)
    price = first.of([needs.MASK])[needs.MASK]
    assert 1e-11 < price < 1e-6
    again = Prices.load(file)
    assert again.of([needs.MASK, needs.WORDS])[needs.MASK] == price
    assert again.measured == []
    assert Prices.load(file, anew=True).known == {}


def test_where_prices_cannot_be_kept_they_are_measured_all_the_same(tmp_path):
    (tmp_path / "fedboost").write_text("a file where the folder would be")
    known = Prices.load(tmp_path / "fedboost" / "prices.json").of([needs.MASK])
    assert known[needs.MASK] > 0


def test_neighbours_work_while_prices_are_taken_and_are_gone_afterwards():
    before = set(multiprocessing.active_children())
    with prices.neighbours(2):
        busy = set(multiprocessing.active_children()) - before
        assert len(busy) == 2
    assert not any(one.is_alive() for one in busy)


def test_damaged_prices_are_measured_anew(tmp_path):
    file = tmp_path / "prices.json"
    file.write_text("{")
    assert Prices.load(file).known == {}


def test_an_unknown_primitive_has_no_price():
    with pytest.raises(ConfigError, match="nobody knows"):
        Prices().of(["fly"])


@pytest.mark.parametrize(
    "name", [needs.DIGEST, needs.FIT, needs.NOISY, "plain: add", "equations of a class: 8",
             "outputs of a row: 4x8", "squares of a row: 8"],
)  # fmt: skip
def test_primitives_are_measured_in_seconds_of_one(name):
    found = price_lists.measure(name, prices.timed)
    assert 0.0 < found[name] < 1e-2


def test_every_operation_of_a_scheme_has_a_price():
    found = price_lists.measure("plain: add", prices.timed)
    assert found.keys() == {f"plain: {operation}" for operation in ciphers.OPERATIONS}


def test_the_benchmark_says_how_far_the_worst_job_is_off():
    rows = [
        {"job": "a", "ratios": {"seconds": 0.5, "bytes": 1.0}},
        {"job": "b", "ratios": {"seconds": 1.2, "bytes": 1.1}},
    ]
    figures = benchmark.figures(rows)
    assert figures["ratio.seconds.a"] == 0.5
    assert figures["worst.seconds"] == pytest.approx(2.0)
    assert figures["worst.bytes"] == pytest.approx(1.1)


def test_tables_that_cannot_be_pooled_grow_as_trees_do(tmp_path):
    pq.write_table(
        pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "y": [0, 0]}), tmp_path / "b.parquet"
    )
    pq.write_table(pa.table({"id": ["a", "b"], "z": [1.0, 2.0]}), tmp_path / "t.parquet")
    raw = small_jobs.raw("secureboost")
    raw["parties"], raw["data"] = {"guest": "bank", "hosts": ["telco"]}, {
        "bank": {"dataset": "d", "label": "y"}, "telco": {"dataset": "d"}}  # fmt: skip
    del raw["validation"]
    spec = parse(type(job()), raw)
    sources = {
        "bank": SourceSpec(path=str(tmp_path / "b.parquet")),
        "telco": SourceSpec(path=str(tmp_path / "t.parquet")),
    }
    assert scenes.from_tables(spec, sources).scene.growth is None  # one class is no training
