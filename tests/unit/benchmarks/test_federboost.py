"""The FederBoost benchmark: jobs, the room they run in, a slow line, figures and plots."""

import asyncio
import json
import socket
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from benchmarks import (
    federboost,
    federboost_jobs,
    federboost_plots,
    federboost_room,
    federboost_tables,
    federboost_times,
    links,
    tables,
)
from benchmarks.federboost_jobs import Plan
from benchmarks.harness import JobRun, StepTotal
from benchmarks.links import Line, Lines, Link
from fedboost.core import local, metrics
from fedboost.core.params import TreeParams
from fedboost.job import JobSpec


def toy(rows=300, columns=("a", "b", "c", "d")):
    draw = np.random.default_rng(5)
    values = np.asfortranarray(draw.normal(size=(rows, len(columns))).astype(np.float32))
    y = (values.sum(axis=1) + draw.normal(size=rows) > 0.0).astype(np.int64)
    return tables.Table("susy_30k", np.arange(rows) + 10**6, y, values, columns)


def job_run(seconds, others=0.0):
    """A finished job whose training took so long, beside so many cores of others."""
    step = StepTotal("federboost-vertical", "send_buckets", bytes={"host->guest": 70})
    aligned = StepTotal("align", "meet", bytes={"host->guest": 9999})
    times = {"train": seconds, "align": 2 * seconds}
    result = {"protocol": "federboost-vertical", "seconds": times}
    spent = {"seconds": 2.0, "ours": seconds / 2, "others": 2.0 * others, "stolen": 0.0}
    return JobRun(result, [aligned, step], [], {}, [0.5], [0.6], spent)


def utility(data, buckets, epsilon, seed, auc, xgboost=0.8):
    facts = {"what": "utility", "data": data, "rows": 9, "columns": 4, "seed": seed}
    return {**facts, "buckets": buckets, "epsilon": epsilon, "auc": auc, "xgboost": xgboost}


UTILITY = [
    *(utility("toy", 16, None, seed, auc) for seed, auc in enumerate([0.79, 0.82])),
    *(utility("toy", 16, 4.0, seed, auc) for seed, auc in enumerate([0.78, 0.77])),
    *(utility("toy", 8, None, seed, 0.5) for seed in range(2)),
    utility("toy", 16, 1.0, 0, 0.5),
]


def timed(what, seconds, others=0.0, **more):
    facts = {"what": what, "data": "susy_30k", "rows": 9, "columns": 4, "parties": 3}
    spent = {"first": 9.0, "align": 1.0, "cpu_s": 0.5, "others": others, "sent": 70, "load": [1.0]}
    return {**facts, "seconds": seconds, **spent, **more}


def parties(network, count, seconds):
    return timed("parties", [seconds], network=network) | {"parties": count}


def test_parties_share_the_columns_in_order_and_all_of_them():
    table = toy(columns=tuple("abcdefg"))
    assert federboost_jobs.parts(table, 2) == {"guest": tuple("abcd"), "host": tuple("efg")}
    dealt = federboost_jobs.parts(table, 3)
    assert dealt == {"guest": tuple("abc"), "host1": ("d", "e"), "host2": ("f", "g")}
    known = replace(toy(columns=tables.HOST_COLUMNS["give_credit"]), name="give_credit")
    known = replace(known, columns=("a", *known.columns[1:]))
    assert federboost_jobs.parts(known, 2)["guest"] == ("a",)


def test_a_job_asks_for_the_papers_trees_and_holds_no_row_out():
    given = federboost_jobs.params("susy_30k", epsilon=4.0)
    spec = federboost_jobs.job(toy(), federboost_jobs.parts(toy(), 3), given)
    assert isinstance(spec, JobSpec)
    assert spec.validation is None
    assert spec.parties.hosts == ["host1", "host2"]
    assert (spec.params["n_estimators"], spec.params["max_depth"]) == (60, 4)
    same = federboost_jobs.xgboost_params(given)
    assert same == {"n_estimators": 60, "max_depth": 4, "learning_rate": 0.3, "reg_lambda": 1.0}


def test_the_second_class_of_covtype_stands_against_the_rest(monkeypatch):
    several = replace(toy(), name="covtype", y=np.arange(300) % 7)
    monkeypatch.setattr(tables, "load", lambda name: several)
    assert federboost_jobs.load("covtype").y.tolist() == (several.y == 1).astype(int).tolist()


def test_the_room_trains_the_pooled_trees_and_scores_true_values():
    table, held = toy(), np.arange(300) % 3 == 0
    test = federboost_jobs.rows_of(table, held)
    dealt = federboost_jobs.parts(table, 3)
    given = federboost_jobs.params("susy_30k", n_estimators=5, buckets=8, max_bin=8)
    trained = federboost_room.train(table, dealt, given, held)
    own = {name: given[name] for name in given if name in TreeParams.model_fields}
    learned = local.TrainingTable(table.values[~held], table.y[~held].astype(np.float64))
    pooled = local.train(learned, TreeParams(**own)).predict(test.values)[:, 0]
    found = federboost_room.predict(trained.shards, test, dealt)
    assert found.tolist() == pooled.tolist()
    expected = metrics.evaluate("auc", test.y.astype(np.float64), pooled)
    assert federboost_room.auc(test, found) == expected


def test_the_room_draws_fresh_noise_and_counts_bytes_and_seconds():
    table = toy()
    dealt = federboost_jobs.parts(table, 2)
    given = federboost_jobs.params("susy_30k", n_estimators=2, epsilon=1.0)
    first, second = (federboost_room.train(table, dealt, given) for _ in range(2))
    scored = [federboost_room.predict(one.shards, table, dealt) for one in (first, second)]
    assert scored[0].tolist() != scored[1].tolist()
    # Four bits for each row of both host columns, and the words around them.
    assert 300 <= first.sent["host"] < 300 + 150
    assert {"open", "send_buckets", "grow_trees", "finish"} <= set(first.seconds)
    assert first.total == pytest.approx(sum(first.seconds.values()))


def test_a_line_sends_one_thing_after_the_other():
    line = Line(bits_per_s=8000.0)
    assert line.leaves(1000, now=5.0) == 6.0
    assert line.leaves(500, now=5.0) == 6.5
    assert line.leaves(500, now=9.0) == 9.5


def test_a_daemon_has_one_line_up_and_one_down_whoever_is_at_the_other_end():
    lines = Lines(Link())
    up, down = lines.of("guest", "host1")
    assert lines.of("guest", "host2")[0] is up
    assert lines.of("host2", "host1")[1] is down
    assert lines.of("host1", "guest")[0] is not down


def test_settings_lead_through_the_lines_and_bytes_come_out_as_they_went_in(tmp_path):
    asyncio.run(_through_a_line(tmp_path))


async def _through_a_line(folder):
    """An echo behind the lines, over loopback: 40 kB there and back, faster than any clock."""

    async def echo(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    raw = {"name": "guest", "coordinator": {"address": address}, "peers": {"host": address}}
    config = folder / "guest.yaml"
    config.write_text(json.dumps(raw))
    proxies = links._Proxies(Lines(Link(bits_per_s=1e12, latency_s=0.0)))
    await proxies.between("guest", config)
    led = yaml.safe_load(config.read_text())
    new = led["peers"]["host"]
    assert address not in (new, led["coordinator"]["address"])
    reader, writer = await asyncio.open_connection("127.0.0.1", int(new.split(":")[1]))
    sent = bytes(range(256)) * 160
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    writer.close()
    assert proxies.lines.up["guest"].free_at > 0.0
    assert proxies.lines.up["host"].free_at > 0.0
    await proxies.close()
    server.close()


def test_gaps_are_means_over_splits_at_sixteen_buckets():
    found = federboost_tables.figures(UTILITY)
    expected = {"auc_gap.vertical.toy": 0.005, "auc_gap.vertical_eps4.toy": 0.025}
    assert found == pytest.approx(expected)


def test_times_are_medians_and_xgboost_counts_at_its_fastest():
    rows = [
        timed("compared", [1.0, 5.0, 1.2], title="Table 2", paper_s=1.213, trees=200),
        timed("compared", [3.0, 3.0], title="Table 3", paper_s=32.4, trees=32),
        timed("xgboost", [0.6, 0.4, 0.5], xgboost={"256": [0.5, 0.5], "16": [0.2, 0.3]}),
    ]
    found = federboost_tables.figures(rows)
    expected = {"vertical_200_seconds": 1.2, "train_time_over_xgboost.susy_30k": 2.0}
    assert found == pytest.approx(expected)
    assert federboost_tables.figures([]) == {}


def spent(run, repeats):
    return federboost_times.spent(*federboost_times.jobs(run, {}, repeats))


def test_a_first_job_warms_up_and_only_the_stage_itself_counts():
    runs = iter([job_run(9.0), job_run(1.0, others=0.5), job_run(3.0, others=1.5)])
    found = spent(lambda given: next(runs), 2)
    assert found == {
        "seconds": [1.0, 3.0], "first": 9.0, "align": 4.0, "cpu_s": 1.0, "others": 1.0,
        "sent": 70, "load": [0.5],
    }  # fmt: skip
    silent = iter([replace(job_run(1.0), training={}) for _ in range(2)])
    found = spent(lambda given: next(silent), 1)
    assert (found["cpu_s"], found["others"]) == (None, None)
    found = spent(lambda given: job_run(2.0), 0)
    assert (found["seconds"], found["first"]) == ([2.0], 2.0)


def test_tables_say_gaps_and_disturbed_times():
    by_buckets, by_noise = federboost_tables.shown(UTILITY)
    assert [cells[0] for cells in by_buckets.rows] == ["16", "8"]
    assert [cells[0] for cells in by_noise.rows] == ["4.0", "1.0", "none"]
    assert by_noise.rows[0][4] == "-0.02500"
    rows = [parties("daemons", count, 1.0 * count) for count in (2, 4)]
    (quiet,) = federboost_tables.shown(rows)
    assert [cells[:3] for cells in quiet.rows] == [
        ("daemons", "2", "2.000"), ("daemons", "4", "4.000"),
    ]  # fmt: skip
    assert quiet.note == ""
    (busy,) = federboost_tables.shown([*rows, timed("parties", [1.0], 0.9, network="WAN")])
    assert "CPU seconds" in busy.note


def test_plots_are_xml_with_a_line_for_each_data_set_and_network(tmp_path):
    own = [{**row, "data": "susy_30k"} for row in UTILITY]
    timings = [parties(net, n, 1.0 * n) for net in ("one process", "WAN") for n in (2, 4)]
    shown = federboost_plots.write(tmp_path, [*own, *timings])
    assert len(shown) == 3
    count = {}
    for name in ("buckets", "noise", "parties"):
        drawn = ElementTree.parse(tmp_path / f"federboost-{name}.svg").getroot()
        count[name] = len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline")))
    assert count == {"buckets": 2, "noise": 2, "parties": 2}  # XGBoost's among the gaps
    assert federboost_plots.write(tmp_path, []) == []


def test_the_command_line_says_what_is_run():
    quick = federboost.BENCHMARK.options(["--quick"])
    assert quick.quick
    assert tuple(quick.data) == federboost_jobs.DATA
    assert tuple(quick.part) == federboost.PARTS
    assert Plan.of(quick=False).buckets == (4, 8, 12, 16, 20, 24, 28, 32)
    assert len(Plan.of(quick=False).seeds) == 5
    assert {16} <= set(Plan.of(quick=True).buckets)
    assert {4.0} <= set(Plan.of(quick=True).epsilons)
    with pytest.raises(SystemExit):
        federboost.BENCHMARK.main(["--fast"])


@pytest.fixture
def small(monkeypatch):
    """Tables of no size, and daemons that take no time."""

    @contextmanager
    def daemons(table, count, around=None):
        yield lambda given: job_run(0.1 * count)

    named: Any = lambda name: replace(toy(), name=name)  # noqa: E731
    monkeypatch.setattr(federboost_jobs, "load", named)
    monkeypatch.setattr(federboost_jobs, "daemons", daemons)
    monkeypatch.setattr(federboost_jobs, "TREES", {name: TINY for name in federboost_jobs.DATA})
    monkeypatch.setattr(tables, "HOST_COLUMNS", {})


TINY = {"n_estimators": 2, "max_depth": 2}
PARTS = ("utility", "time")
VERTICAL = [f"--part={part}" for part in PARTS]


@pytest.mark.some(3, of="benchmarks that train")
def test_the_figures_are_the_interfaces(small, tmp_path):
    written = tmp_path / "f.json"
    named = ["--data", "susy_30k", "--data", "give_credit"]
    federboost.BENCHMARK.main(["--quick", *named, *VERTICAL, "--json", str(written)])
    found = json.loads(written.read_text())
    assert found["name"] == "federboost"
    gaps = {f"auc_gap.{k}.{data}" for k in ("vertical", "vertical_eps4") for data in named[1::2]}
    times = {"vertical_200_seconds", "train_time_over_xgboost.give_credit"}
    assert set(found["figures"]) == gaps | times
    assert found["figures"]["vertical_200_seconds"] == pytest.approx(0.3)
    networks = {(row["data"], row["network"]) for row in found["rows"] if row["what"] == "parties"}
    alone = {(data, "one process") for data in named[1::2]}
    assert networks == alone | {("susy_30k", "daemons"), ("susy_30k", "WAN")}


@pytest.mark.some(3, of="benchmarks that train")
def test_runs_of_parts_are_shown_together(small, tmp_path):
    files = [tmp_path / f"{part}.json" for part in PARTS]
    for part, file in zip(PARTS, files, strict=True):
        given = ["--quick", "--data", "susy_30k", "--part", part, "--json", str(file)]
        federboost.BENCHMARK.main(given)
    report = federboost.BENCHMARK.earlier(files)
    runs = [json.loads(file.read_text()) for file in files]
    assert len(report.rows) == sum(len(run["rows"]) for run in runs)
    assert report.figures == runs[0]["figures"] | runs[1]["figures"]
    shown = tmp_path / "all.json"
    federboost.BENCHMARK.main(["--record", str(shown), *(f"--from={file}" for file in files)])
    assert json.loads(shown.read_text())["figures"]["vertical_200_seconds"] == pytest.approx(0.3)


def test_a_wan_is_put_before_the_daemons_and_taken_away_after(tmp_path):
    configs = {"coordinator": {"parties": {"guest": "127.0.0.1:9"}}}
    configs["guest"] = {"coordinator": {"address": "127.0.0.1:9"}, "peers": {}}
    for name, raw in configs.items():
        (tmp_path / name).write_text(json.dumps(raw))
    cluster: Any = SimpleNamespace(names=("guest",), config=lambda name: tmp_path / name)
    with links.shaped(cluster):
        led = yaml.safe_load((tmp_path / "coordinator").read_text())
        host, port = led["parties"]["guest"].split(":")
        assert port != "9"
        socket.create_connection((host, int(port))).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
