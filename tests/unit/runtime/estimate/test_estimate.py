"""What jobs are rehearsed to need, what machines take for it, and what comes of the two."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import estimate as benchmark
from fedboost import protocols
from fedboost.cli import estimate as command
from fedboost.crypto.lattice.packing_keys import PackingShape
from fedboost.crypto.lattice.parameters import by_name
from fedboost.crypto.oprf.sizes import OprfSizes
from fedboost.data.sources import SourceSpec
from fedboost.flow import RowsUsed
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET
from fedboost.runtime.estimate import cipher_tally, phases, prices, scenes
from fedboost.runtime.estimate.estimate import Placement, estimate
from fedboost.runtime.estimate.setting import StatedSizes, from_tables, from_words
from fedboost.runtime.process.memory import LARGE_ROWS
from fedboost.runtime.process.workers import ProcessWorkers
from tests.support import federated, scaled, small_jobs
from tests.support.whole_jobs import written

TRAINING = ("secureboost", "federboost-vertical", "federboost-horizontal", "gbun", "hybridtree")
TWO = StatedSizes({"bank": 10, "telco": 10}, {"bank": 1, "telco": 1})
SAID = StatedSizes(dict.fromkeys(small_jobs.PARTIES, 1000), dict.fromkeys(small_jobs.PARTIES, 4))


class Flat(dict[str, float]):
    """Prices of which every one is known."""

    def __missing__(self, name):
        return 1e6 if name.startswith("memory") else 1e-6


def flat(names):
    """A machine that takes a microsecond for anything."""
    return Flat()


def job(name="secureboost", **params):
    """A toy job."""
    return small_jobs.spec(name, **params)


def rehearsed(name, params, *, hosts=("telco",), rows=1000, columns=10):
    """A job of a guest and hosts with tables of so many rows and columns, rehearsed."""
    parties = ("bank", *hosts)
    said = StatedSizes(dict.fromkeys(parties, rows), dict.fromkeys(parties, columns))
    raw = {
        "name": "j",
        "protocol": name,
        "parties": {"guest": "bank", "hosts": list(hosts)},
        "data": {party: {"dataset": DATASET} for party in parties},
        "params": params,
    }
    if protocols.load_protocol(name).tables.rows is RowsUsed.OWN:
        raw["parties"]["aggregator"] = "bank"
    return from_words(parse_settings(JobSpec, raw), said)


def found(setting):
    """All phases of all stages."""
    return [phase for one in setting.stages for phase in one.phases]


def total(setting, party, primitive):
    """How often a party does something in the whole job."""
    works = [(p.times, *work) for p in found(setting) for work in p.operations()]
    return sum(times * n for times, who, what, n in works if (who, what) == (party, primitive))


def n_bytes(setting):
    """Bytes by link in the whole job."""
    sent: dict[str, float] = {}
    for phase in found(setting):
        for (sender, receiver), count, _ in phase.sent():
            link = f"{sender}->{receiver}"
            sent[link] = sent.get(link, 0.0) + count * phase.times
    return sent


def test_ids_bins_and_ciphertexts_of_large_tables_are_disk_and_no_memory():
    small, large = (
        estimate(rehearsed("secureboost", {**LATTICE, "max_depth": 1}, rows=n), Placement(2), flat)
        for n in (LARGE_ROWS - 1, LARGE_ROWS)
    )
    assert small.disk_peak_bytes == {"bank": 0, "telco": 0}
    of_a_row = 2 * 33 + 4 * 10  # ids and their aligned ones, values
    assert large.disk_peak_bytes == dict.fromkeys(("bank", "telco"), of_a_row * LARGE_ROWS)
    for party, n_bytes in large.memory_peak_bytes.items():
        assert n_bytes < small.memory_peak_bytes[party]


TREES = {"n_estimators": 5, "max_depth": 2, "max_bin": 16}
PAILLIER = {**TREES, "encryption": {"scheme": "paillier"}}
LATTICE = {"encryption": {"scheme": "lattice"}}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("secureboost", {}),
        ("secureboost", LATTICE),
        ("federboost-vertical", {}),
        ("federboost-horizontal", {"dropout": "continue"}),
        ("gbun", {}),
        ("gbun", {"columns": "bins", "quantile_tolerance": 2}),
        ("hybridtree", {}),
    ],
)
def test_bytes_and_exchanges_are_those_of_the_job(tmp_path, name, params):
    spec = job(name, **params, n_estimators=2)
    tables = small_jobs.tables(name, rows=120)
    setting = from_tables(spec, written(tmp_path / "tables", tables))
    result = federated.run_job(tmp_path / "job", tables, spec).result
    sent = n_bytes(setting)
    assert sent.keys() == result["bytes"].keys()
    for link, count in result["bytes"].items():
        assert sent[link] == pytest.approx(count, rel=0.01, abs=300)
    assert sum(phase.exchanges * phase.times for phase in found(setting)) == result["exchanges"]


def test_encryption_is_counted_once_a_row_and_tree():
    setting = rehearsed("secureboost", PAILLIER)
    assert total(setting, "bank", "paillier-2048: encrypt") == 5 * 1000
    assert total(setting, "telco", "paillier-2048: receive") == 5 * 1000
    # All rows at the root, of the two nodes below it the smaller one, but for the largest bins.
    assert total(setting, "telco", "paillier-2048: add") == pytest.approx(5 * 10 * 1000, rel=0.1)
    few = total(setting, "telco", "paillier-2048: add, few rows")
    assert 0 < few <= 5 * 10 * 500


def test_candidates_are_answered_and_read_one_for_each_bin_but_the_last():
    setting = rehearsed("secureboost", PAILLIER)
    nodes, packages = 5 * 3, 3  # of 55 sums at most
    assert total(setting, "telco", "paillier-2048: answer") == nodes * packages
    assert total(setting, "bank", "paillier-2048: decrypt") == nodes * packages
    packed = nodes * (150 - packages) / 55
    assert total(setting, "telco", "paillier-2048: pack") == pytest.approx(packed, rel=0.2)


def test_goss_encrypts_the_rows_that_it_draws():
    goss = {"goss": {"top_rate": 0.2, "other_rate": 0.1}}
    setting = rehearsed("secureboost", {**PAILLIER, **goss})
    assert total(setting, "bank", "paillier-2048: encrypt") == pytest.approx(5 * 300)


@pytest.mark.parametrize(("trees", "of_host"), [(1, 3), (2, 2), (4, 1)])
def test_mix_encrypts_in_the_hosts_trees_alone(trees, of_host):
    mix = {"n_estimators": 5 + (trees == 1), "mode": "mix", "trees_per_party": trees}
    setting = rehearsed("secureboost", {**PAILLIER, **mix})
    assert total(setting, "bank", "paillier-2048: encrypt") == of_host * 1000


def test_a_tree_per_class_is_counted_for_each_class():
    classes = {"objective": "multi:softprob", "num_class": 3}
    setting = rehearsed("secureboost", {**PAILLIER, **classes})
    assert total(setting, "bank", "paillier-2048: encrypt") == 3 * 5 * 1000
    vectors = rehearsed("secureboost", {**PAILLIER, **classes, "multi_output": True})
    assert total(vectors, "bank", "paillier-2048: encrypt") == 5 * 1000


def test_a_forest_encrypts_the_rows_of_any_of_its_trees():
    forest = {"forest": {"n_trees": 2, "subsample": 0.5}}
    setting = rehearsed("secureboost", {**PAILLIER, **forest})
    assert total(setting, "bank", "paillier-2048: encrypt") == pytest.approx(5 * 750, rel=0.05)


def test_without_packing_a_row_takes_two_ciphertexts():
    setting = rehearsed("secureboost", {**PAILLIER, "gh_packing": False})
    assert total(setting, "bank", "paillier-2048: encrypt") == 5 * 2 * 1000


def test_answers_of_a_lattice_are_as_large_as_its_polynomials():
    vectors = {"encryption": {"scheme": "lattice", "answers": "vectors"}}
    found = [rehearsed("secureboost", {**TREES, **own}) for own in (PAILLIER, LATTICE, vectors)]
    modular, packed, whole = (n_bytes(setting)["telco->bank"] for setting in found)
    assert whole > 50 * modular
    assert modular < packed < 0.2 * whole
    said = [setting.stages[-1].answers for setting in found]
    assert said[0] == ""
    assert said[1].startswith("packed, 32 sums in a ciphertext: 1.")
    assert said[2].startswith("vectors: ")
    sent = [n_bytes(setting)["bank->telco"] for setting in found[1:]]
    assert sent[0] - sent[1] == pytest.approx(5 * PackingShape(by_name("lattice"), 2, 32).key_bytes)
    held = [setting.stages[-1].memory["telco"] for setting in found]
    assert held[1] > held[0]


def test_every_party_moves_every_set_of_ids_once():
    setting = rehearsed("federboost-vertical", TREES, rows=19_999)
    (align,) = [one for one in setting.stages if one.name == "align"]
    assert aligned_bytes(align) == pytest.approx(19_999 * (32 * 2 + 16), rel=0.01)
    worked = sum(n for phase in align.phases for who, what, n in phase.operations()
                 if (who, what) == ("telco", phases.SHARED))  # fmt: skip
    assert worked > 0.2  # a point takes at least some microseconds


def test_a_search_for_cut_points_is_rehearsed_on_as_many_rows_as_it_needs():
    few = rehearsed("federboost-horizontal", {**TREES, "max_bin": 32}, rows=3000)
    wide = rehearsed("federboost-horizontal", {**TREES, "max_bin": 256}, rows=200_000, columns=100)
    assert n_bytes(wide)["telco->bank"] > 8 * n_bytes(few)["telco->bank"] > 0


@pytest.mark.parametrize(
    ("rows", "guest", "host"), [(1_000_000, 0.27, 0.31), (10_000_000, 1.25, 0.80)]
)
def test_memory_is_about_what_daemons_have_held_or_more(rows, guest, host):
    """In gigabytes: what the job of `benchmarks.scale` held at once, without pages of files, of
    which 0.15 are a daemon's without rows. Work that large tables do part by part counts as whole,
    and encrypted rows as far as rehearsals of some thousand rows hold them at their peak.
    """
    with ProcessWorkers(1) as apart:  # as of a daemon: other tests' threads allocate, too
        (held,) = apart.map(scaled.held, [(rows,)])
    for party, measured in (("guest", guest), ("host", host)):
        assert 0.9 * measured <= 0.15 + held[party] / 1e9 <= 2.2 * measured


def test_a_party_that_only_adds_up_has_memory_too():
    said = StatedSizes(dict.fromkeys(("bank", "telco"), 3000), dict.fromkeys(("bank", "telco"), 4))
    parties = {"guest": "bank", "hosts": ["telco"], "aggregator": "sum"}
    data = {party: {"dataset": DATASET} for party in ("bank", "telco")}
    raw = {"name": "j", "protocol": "federboost-horizontal", "parties": parties, "data": data}
    setting = from_words(parse_settings(JobSpec, {**raw, "params": TREES}), said)
    found = estimate(setting, Placement(2), flat)
    assert found.memory_peak_bytes.keys() == {"bank", "telco", "sum"}


def test_many_ids_are_aligned_by_an_oblivious_function():
    """A part of the guest's takes 59 bytes for each of 1.3 rows an id; the host's tags take 12."""
    setting = rehearsed("federboost-vertical", TREES, rows=1_000_000)
    (align,) = [one for one in setting.stages if one.name == "align"]
    sizes = OprfSizes(1_000_000, 1_000_000)
    assert aligned_bytes(align) == pytest.approx(sizes.bins * sizes.part_bytes, rel=0.05)
    back = aligned_bytes(align, ("telco", "bank"))
    assert back == pytest.approx(sizes.bins * sizes.tags_bytes, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "method", "says"),
    [((1 << 24) + 1, "ecdh", "on the curve"), ((1 << 30) + 1, "auto", "cannot be aligned")],
)
def test_more_ids_than_the_method_takes_are_refused_before_a_job_is(rows, method, says):
    said = StatedSizes(dict.fromkeys(("bank", "telco"), rows), dict.fromkeys(("bank", "telco"), 4))
    parties = {"guest": "bank", "hosts": ["telco"]}
    data = {party: {"dataset": DATASET} for party in ("bank", "telco")}
    raw = {"name": "j", "protocol": "federboost-vertical", "parties": parties, "data": data}
    spec = parse_settings(JobSpec, {**raw, "params": TREES, "alignment": {"method": method}})
    with pytest.raises(FedboostError, match=says):
        estimate(from_words(spec, said), Placement(2), flat)


def aligned_bytes(stage, way=("bank", "telco")):
    """The bytes of a stage that go one way."""
    return sum(count for phase in stage.phases for link, count, _ in phase.sent() if link == way)


def test_buckets_travel_once_in_as_few_bits_as_they_need():
    params = {**TREES, "buckets": 16}
    setting = rehearsed("federboost-vertical", params)
    again = rehearsed("federboost-vertical", {**TREES, "reuse": "a-job"})
    told = 1000 * 10 * 4 / 8
    assert [one.name for one in again.stages] == ["federboost-vertical"]
    align = 1000 * 32 * 3  # two sets, and what is opened
    assert n_bytes(setting)["telco->bank"] == pytest.approx(align + told, rel=0.1)
    assert "telco->bank" not in n_bytes(again)


def test_equations_of_a_network_are_as_many_words_as_they_say():
    setting = rehearsed("gbun", {"n_estimators": 4, "outputs": 64}, hosts=("telco", "shop"))
    words = 2 * 64 + 1 + 64 * 65 / 2 + 64
    each = [phase for phase in found(setting) if phase.round == 0]
    sent = sum(count for phase in each for link, count, _ in phase.sent()
               if link == ("telco", "bank"))  # fmt: skip
    assert sent > 8 * words
    assert all(phase.times == 2.0 for phase in each)


def test_a_share_of_the_rows_tells_what_all_of_them_take(monkeypatch):
    params = {"n_estimators": 3, "max_depth": 3, "max_bin": 16}
    whole = rehearsed("secureboost", params, rows=8000)
    monkeypatch.setattr(scenes, "ROWS", 2000)
    part = rehearsed("secureboost", params, rows=8000)
    for link, count in n_bytes(whole).items():
        assert n_bytes(part)[link] == pytest.approx(count, rel=0.1)
    for operation in ("encrypt", "receive", "add", "subtract", "prefix sum", "answer"):
        name = f"paillier-2048: {operation}"
        for party in ("bank", "telco"):
            assert total(part, party, name) == pytest.approx(total(whole, party, name), rel=0.1)


def test_seconds_grow_with_the_rows_and_never_faster():
    assert phases.value_at_all_rows(1.0, 2.0, (0.25, 0.5)) == pytest.approx(4.0)
    assert phases.value_at_all_rows(1.0, 1.5, (0.25, 0.5)) == pytest.approx(2.5)
    assert phases.value_at_all_rows(2.0, 1.0, (0.25, 0.5)) == 1.0
    assert phases.value_at_all_rows(0.0, 2.0, (0.25, 0.5)) == 4.0
    assert phases.value_at_all_rows(1.0, 2.0, (1.0, 1.0)) == 2.0


def test_rows_in_common_are_those_of_the_tables(tmp_path):
    tables = small_jobs.tables("secureboost")
    tables["shop"] = tables["shop"].slice(0, 100)
    setting = from_tables(job(), written(tmp_path, tables))
    assert setting.scene.common == 100
    assert setting.scene.shared == {"telco": 300, "shop": 100}
    assert setting.sample is not None
    assert {frame.n_rows for frame in setting.sample.frames.values()} == {100}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", TRAINING)
def test_an_estimate_says_what_a_result_says(name):
    spec = job(name)
    found = estimate(from_words(spec, SAID), Placement(2), flat).said()
    assert found["memory_peak_bytes"].keys() == set(small_jobs.PARTIES)
    total, least, most = (found["seconds"][key] for key in ("total", "least", "most"))
    assert 0.0 < least == total / 2 < most == 2 * total
    assert sum(found["bytes"].values()) > 0
    assert found["assumed"]
    json.dumps(found, allow_nan=False)


def test_a_job_that_names_no_scheme_is_estimated_under_the_one_that_it_would_get(tmp_path):
    few, many, more = (
        rehearsed("secureboost", {**TREES, "n_estimators": 1}, rows=rows)
        for rows in (1000, 1 << 22, 1 << 28)
    )
    assert few.encryption == {"scheme": "lattice", "because": "every party's policy allows it"}
    assert n_bytes(few) == n_bytes(
        rehearsed("secureboost", {**TREES, **LATTICE, "n_estimators": 1})
    )
    why = "bank's table may have more rows than lattice adds up"
    assert many.encryption == {"scheme": "lattice-large", "because": why}
    assert more.encryption["scheme"] == "paillier"
    assert any("policy allows every encryption scheme" in one for one in few.assumed)
    spec = job().model_copy(update={"params": {**TREES, "n_estimators": 2}})
    sources = written(tmp_path, small_jobs.tables("secureboost", rows=120))
    found = estimate(from_tables(spec, sources), Placement(2), flat)
    assert found.encryption == few.encryption
    named = estimate(from_words(job(), SAID), Placement(2), flat)
    assert named.encryption == {"scheme": "plain", "because": "the job names it"}


def test_a_job_on_an_earlier_alignment_has_no_stage_for_it():
    spec = job().model_copy(update={"alignment": "a-job"})
    assert [stage.name for stage in from_words(spec, SAID).stages] == ["secureboost"]


def test_on_one_machine_parties_share_its_cores_and_apart_they_do_not():
    spec = job()
    setting = from_words(spec, SAID)
    here = estimate(setting, Placement(1), flat)
    apart = estimate(setting, Placement(1, apart=True), flat)
    assert here.seconds["total"] > apart.seconds["total"]


def test_a_slow_link_is_waited_for():
    spec = job()
    setting = from_words(spec, SAID)
    fast = estimate(setting, Placement(1, apart=True, bytes_per_s=1e9), flat)
    slow = estimate(setting, Placement(1, apart=True, bytes_per_s=1e4), flat)
    late = estimate(setting, Placement(1, apart=True, bytes_per_s=1e9, latency_s=0.1), flat)
    data = max(slow.bytes.values())
    assert slow.seconds["total"] - fast.seconds["total"] >= data / 1e4 * 0.9
    assert late.seconds["total"] - fast.seconds["total"] > 3 * 3 * 0.2


def test_what_is_not_said_is_asked_for():
    with pytest.raises(ConfigError, match="how many columns shop has"):
        from_words(job(), StatedSizes(SAID.rows, {"bank": 1, "telco": 1}))
    with pytest.raises(ConfigError, match="how many rows bank has"):
        from_words(job(), StatedSizes({}, SAID.columns))


def test_a_protocol_that_trains_nothing_is_refused():
    echo = {
        "name": "e",
        "protocol": "echo",
        "parties": {"guest": "bank", "hosts": ["telco"]},
        "data": {"bank": {"dataset": "d"}, "telco": {"dataset": "d"}},
    }
    spec = parse_settings(type(job()), echo)
    with pytest.raises(ConfigError, match="cannot be estimated"):
        estimate(from_words(spec, TWO), Placement(1), flat)


def test_tables_of_strangers_are_refused():
    with pytest.raises(ConfigError, match="which has no table in the job"):
        from_words(job(), StatedSizes({**SAID.rows, "bnak": 1}, SAID.columns))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("100MB/s,20ms", (100e6, 0.02)),
        ("1Gbit/s", (125e6, 0.0)),
        ("5kB/s,1.5s", (5e3, 1.5)),
    ],
)
def test_a_link_is_a_speed_and_a_delay(text, found):
    place = command._parse_placement(text, 2)
    assert (place.bytes_per_s, place.latency_s) == found
    assert place.apart


@pytest.mark.parametrize("text", ["fast", "100", "100MB/s,soon", "100MB,20ms"])
def test_other_links_are_refused(text):
    with pytest.raises(ConfigError, match="not a speed and a delay"):
        command._parse_placement(text, 2)


def test_every_operation_of_a_scheme_has_a_price():
    said: list[str] = []
    found = prices.prices_of(["plain: add", "plain: encrypt", prices.JOB], said.append)
    of_cipher = {f"plain: {operation}" for operation in cipher_tally.OPERATIONS}
    assert found.keys() == {*prices.TYPICAL, *of_cipher}
    assert 0.0 < found["plain: add"] < 1e-2
    assert said == ["plain"]


def test_the_benchmark_says_how_far_the_worst_job_is_off():
    rows = [
        {"data": "a", "ratios": {"seconds": 0.5, "bytes": 1.0}},
        {"data": "b", "ratios": {"seconds": 1.2, "bytes": 1.1}},
    ]
    figures = benchmark.figures(rows)
    assert figures["ratio.seconds.a"] == 0.5
    assert figures["worst.seconds"] == pytest.approx(2.0)
    assert figures["worst.bytes"] == pytest.approx(1.1)


def test_tables_of_which_a_job_would_be_refused_are_made_up(tmp_path):
    pq.write_table(
        pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "y": [0, 0]}), tmp_path / "b.parquet"
    )
    pq.write_table(pa.table({"id": ["a", "b"], "z": [1.0, 2.0]}), tmp_path / "t.parquet")
    raw = small_jobs.raw("secureboost")
    raw["parties"], raw["data"] = {"guest": "bank", "hosts": ["telco"]}, {
        "bank": {"dataset": "d", "label": "y"}, "telco": {"dataset": "d"}}  # fmt: skip
    del raw["validation"]
    spec = parse_settings(type(job()), raw)
    sources = {
        "bank": SourceSpec(path=str(tmp_path / "b.parquet")),
        "telco": SourceSpec(path=str(tmp_path / "t.parquet")),
    }
    setting = from_tables(spec, sources)
    assert setting.stages
    assert any("made up" in said for said in setting.assumed)
