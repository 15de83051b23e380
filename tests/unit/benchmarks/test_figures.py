"""Published figures, from rows by hand: which rows count, and what they come to."""

from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import (
    alignment,
    encryption,
    encryption_link,
    encryption_operations,
    federboost,
    fedgbf,
    gbun,
    groups,
    hybridtree,
    privacy,
    scale,
    scale_model,
    secureboost,
    secureboost_plus,
    widths,
)
from benchmarks.boosting import LATTICE, OKAMOTO_UCHIYAMA, PAILLIER, PLAIN
from benchmarks.encryption_operations import ADD, CANDIDATE_BYTES, NAMES, OPERATIONS, Job, Price
from benchmarks.federboost_horizontal import EXACT
from benchmarks.fedgbf import DYNAMIC, LONE, SECUREBOOST, Schedule
from benchmarks.gbun_accuracy import GBUN, LIGHTGBM, XGBOOST
from benchmarks.harness import Cost
from benchmarks.hybridtree import MANY, NODE_LEVEL, ONE, PLUS
from benchmarks.hybridtree_accuracy import (
    ALL_LOCAL,
    ALL_XGBOOST,
    FALLING_BACK,
    HOLDERS,
    MAIN,
    MISSING,
    SCORED,
)
from benchmarks.privacy_totals import ALONE, APART, TOTALS
from benchmarks.secureboost_plus import SEVERAL
from fedboost.audit.findings import CLUSTERS, SUMS
from fedboost.core.gradient_bits import BITS_ENCRYPTED

SVG = "{http://www.w3.org/2000/svg}"


def of(what, data="toy", **more):
    return {"what": what, "data": data, "rows": 9, "host_columns": 2, **more}


def cost(wall_s):
    return asdict(Cost(wall_s, 2 * wall_s, 100.0, 0.0, [0.0]))


def drawn(question, found):
    return {
        name: ElementTree.fromstring(str(picture))
        for name, (_, picture) in question.QUESTION.plots(found).items()
    }


def test_secureboost_is_compared_with_xgboost_and_its_floor():
    found = {"auc": {"train": 0.8}, "xgboost": {"train": 0.83}, "floor_ratio": 1.5}
    assert secureboost.figures([of("floor", **found, seconds_per_tree=2.0)]) == {
        "auc_gap.toy": pytest.approx(0.03), "seconds_per_tree.toy": 2.0, "floor_ratio.toy": 1.5,
    }  # fmt: skip


# SecureBoost+


def switches(scheme, **seconds):
    named = {"part": "together", "scheme": scheme}
    return [of("switches", **named, variant=v, **cost(s)) for v, s in seconds.items()]


def classes(several):
    accuracy = {secureboost_plus.ONE: [0.5, 0.7, 0.9, 0.9], SEVERAL: several}
    named = [(kind, on) for on in (False, True) for kind in accuracy]
    return [
        *(of("curves", kind=kind, train=own) for kind, own in accuracy.items()),
        *(of("multi", scheme=PAILLIER, kind=kind, compressing=on, classes=3,
             **cost(2.0 if kind == SEVERAL else 1.0)) for kind, on in named),
    ]  # fmt: skip


def test_cuts_are_shares_of_the_time_saved_under_paillier():
    found = switches(PAILLIER, baseline=10.0, all=1.0, mix=0.6, layered=0.8)
    broken = switches("iterative-affine", baseline=1.0, all=1.0, mix=1.0, layered=1.0)
    expected = {"cut_all.toy": 0.9, "cut_mix.toy": 0.4, "cut_layered.toy": 0.2}
    assert secureboost_plus.figures([*found, *broken]) == pytest.approx(expected)
    bars = drawn(secureboost_plus, found)["trees"].iter(f"{SVG}rect")
    lengths = [
        float(one.attrib["width"].rstrip("%")) for one in bars if one.get("height") != "100%"
    ]
    assert [one / lengths[0] for one in lengths] == pytest.approx([1.0, 0.1, 0.06, 0.08])


def test_multi_output_is_compared_at_the_accuracy_of_one_tree_a_class():
    ratio = 5 * 2.0 / (3 * 3 * 1.0)  # rounds, seconds of a tree, classes
    found = secureboost_plus.figures(classes([0.4, 0.6, 0.8, 0.85, 0.91]))
    expected = {"multi_output_time.toy": ratio, "multi_output_time_compressed.toy": ratio}
    assert found == pytest.approx(expected)
    assert secureboost_plus.figures(classes([0.4, 0.6])) == {}  # never reached


def test_aucs_of_modes_are_beside_xgboosts():
    found = [of("auc", mode=mode, train=auc) for mode, auc in
             ((secureboost_plus.XGBOOST, 0.9), ("mix", 0.8))]  # fmt: skip
    assert secureboost_plus.figures(found) == {"auc_gap.mix.toy": pytest.approx(0.1)}


# FedGBF


def timed(system, *seconds, draw=0):
    laps = [{"seconds": s, "ours": 1.5 * s, "others": 0.0} for s in seconds]
    spent = {"wall_s": sum(seconds), "cpu_s": 1.5 * sum(seconds), "exchanges": 13.0}
    return of("time", system=system, draw=draw, rounds=len(seconds), laps=laps, **spent)


JOBS = [
    timed(SECUREBOOST, 20.0, 10.0, 10.0, 10.0),
    timed(DYNAMIC, 9.0, 8.0, 8.0, 15.0),
    timed(LONE, 1.0, 2.0, 3.0, 4.0),
    timed(LONE, 2.0, 1.0, 3.0, 5.0, draw=1),
    timed(LONE, 1.0, 1.0, 1.0, 99.0, draw=2),  # the last forest has two trees: this is none
]


def test_the_schedule_of_100_rounds_is_the_papers():
    moving = Schedule.of(100)
    assert (moving.least, moving.most) == pytest.approx((22.705, 93.68), abs=0.01)
    # Table 2 of the paper: 58,195 s by equation 10, 62,104 s by equation 11.
    assert moving.most / 100 == pytest.approx(58_195 / 62_104, abs=0.001)
    assert Schedule.of(4).sizes.tolist() == [5, 5, 4, 2]


def test_forests_are_compared_with_secureboost():
    scores = {DYNAMIC: 0.79, SECUREBOOST: 0.8, fedgbf.XGBOOST: 0.9}
    scored = [of("accuracy", system=system, rounds=20, **{"validation.auc": auc})
              for system, auc in scores.items()]  # fmt: skip
    assert fedgbf.figures([*scored, *JOBS]) == pytest.approx(
        {
            "test_auc_gap.toy.20": 0.01,
            "cpu_ratio.toy": 40.0 / 50.0,
            "critical_path_ratio.toy": (2.0 + 2.0 + 3.0 + 5.0) / 50.0,
            "exchanges_ratio.toy": 1.0,
        }
    )
    assert set(fedgbf.figures(JOBS[:2])) == {"cpu_ratio.toy", "exchanges_ratio.toy"}
    texts = [one.text or "" for one in drawn(fedgbf, JOBS)["time"].iter(f"{SVG}text")]
    bounds = (Schedule.of(4).most, Schedule.of(4).least)  # of one tree of 15 CPU seconds
    words = ("75.0 s", f"{15 * bounds[0]:.1f} s", "60.0 s", "18.0 s", f"{15 * bounds[1]:.1f} s")
    assert [text for text in texts if text.endswith(" s")] == [*words]


# FederBoost


def utility(what, auc, **more):
    return [of(what, seed=seed, auc=one, xgboost=0.8, **more) for seed, one in enumerate(auc)]


def test_gaps_of_federboost_are_means_over_splits_at_the_papers_buckets():
    found = [
        *utility("utility", [0.79, 0.82], buckets=16, epsilon=None),
        *utility("utility", [0.78, 0.77], buckets=16, epsilon=4.0),
        *utility("utility", [0.5], buckets=8, epsilon=None),
        *utility("utility", [0.5], buckets=16, epsilon=1.0),
        *utility("horizontal_utility", [0.79, 0.83], buckets=24, tolerance=None),
        *utility("horizontal_utility", [0.7], buckets=24, tolerance=EXACT),
        *utility("horizontal_utility", [0.6], buckets=8, tolerance=None),
    ]
    assert federboost.figures(found) == pytest.approx(
        {
            "auc_gap.vertical.toy": 0.005,
            "auc_gap.vertical_eps4.toy": 0.025,
            "auc_gap.horizontal.toy": 0.01,
        }
    )
    named = [{**row, "data": "susy_30k"} for row in found]
    lines = {name: len(list(one.iter(f"{SVG}polyline"))) for name, one in
             drawn(federboost, named).items()}  # fmt: skip
    assert lines == {"buckets": 2, "noise": 2, "horizontal-buckets": 2}  # XGBoost's among them


def test_times_of_federboost_are_medians_and_xgboost_counts_at_its_fastest():
    shared: Any = {"network": "daemons", "by": "guest"}
    found = [
        of("compared", seconds=[1.0, 5.0, 1.2], title="Table 2"),
        of("compared", seconds=[3.0, 3.0], title="Table 3"),
        of("xgboost", seconds=[0.6, 0.4, 0.5], xgboost={"256": [0.5, 0.5], "16": [0.2, 0.3]}),
        of("horizontal_200", seconds=[3.0, 5.0, 4.0], **shared),
        of("horizontal_200", seconds=[7.0], **{**shared, "by": "aggregator"}),
        of("horizontal_200", seconds=[1.0], **{**shared, "network": "one process"}),
        *(of("horizontal_wan", dropout="wait", trees=n, exchanges=34 + 5 * n, sent=10 * n,
             rounds=[1.5] * n) for n in (2, 12)),
    ]  # fmt: skip
    assert federboost.figures(found) == pytest.approx(
        {
            "vertical_200_seconds": 1.2,
            "train_time_over_xgboost.toy": 2.0,
            "horizontal_200_seconds": 4.0,
            "wan_tree.exchanges.wait": 5.0,
            "wan_tree.sent.wait": 10.0,
            "wan_tree.seconds.wait": 1.5,
        }
    )


# GBUN


def test_gbun_is_compared_with_the_better_of_both_and_bytes_with_the_formula():
    means = {GBUN: [0.8, 0.9], XGBOOST: [0.7, 0.8], LIGHTGBM: [0.9, 0.9]}
    scores = [
        of("accuracy", system=system, chosen={"score": score}, best={"score": 1.0})
        for system, own in means.items()
        for score in own
    ]
    sent = [of("bytes", data, columns=100, up=1005, formula=1000) for data in ("sparse", "dense")]
    found = gbun.figures([*scores, *sent])
    assert found == pytest.approx({"score_gap.toy": 0.9 - 0.85, "bytes_ratio.100": 1.005})
    assert gbun.figures(scores[:4]) == {}  # there is no gap without all three


# HybridTree


def judged(scored, hosts=5, table=MAIN):
    def accuracy(value):
        return {"accuracy": value}

    scores = {
        SCORED: accuracy(scored), ALL_XGBOOST: accuracy(0.9), ALL_LOCAL: accuracy(0.89),
        MISSING: [accuracy(0.3), None], FALLING_BACK: [accuracy(0.7), None, accuracy(0.61)],
    }  # fmt: skip
    return of("accuracy", table=table, dealing={"hosts": hosts, "seed": 0}, scores=scores)


def test_hybridtree_is_compared_with_all_in_and_the_best_single_host():
    found = [judged(0.88), judged(0.86), judged(0.1, 25), judged(0.1, table=HOLDERS)]
    expected = {"accuracy_gap.toy": 0.9 - 0.87, "gain_over_single_host.toy": 0.87 - 0.7}
    assert hybridtree.figures(found) == pytest.approx(expected)


def test_trees_of_hybridtree_are_compared_with_one_host():
    seconds = {NODE_LEVEL: (40.0, 900), PLUS: (12.0, 200), SCORED: (8.0, 100)}
    found = [of("trees", setting=ONE, system=system, wall_s=s, sent=sent)
             for system, (s, sent) in seconds.items()]  # fmt: skip
    found.append(of("trees", setting=MANY, system=SCORED, wall_s=1.0, sent=1))
    expected = {"speedup.toy": 5.0, "bytes_saving.toy": 9.0, "speedup_plus.toy": 1.5}
    assert hybridtree.figures(found) == expected
    assert hybridtree.figures(found[2:]) == {}


# Encryption


def operation(scheme, ns, row_bytes, candidate_bytes):
    sizes = {"bytes of a row": row_bytes, CANDIDATE_BYTES: candidate_bytes}
    return of(OPERATIONS, "", scheme=scheme, ns=dict.fromkeys(NAMES, ns), **sizes)


RING, NUMBER = operation(LATTICE, 100.0, 14, 9486), operation(PAILLIER, 4000.0, 512, 32)


def test_schemes_are_compared_with_the_lattice():
    found = [
        *(RING, NUMBER),
        *(of("trees", scheme=one, wall_s=s) for one, s in ((LATTICE, 2.0), (PAILLIER, 60.0))),
        of("memory", scheme=LATTICE, peak={"guest": 1, "host": 2 * 10**9}),
        *(of("auc", scheme=one, train=auc) for one, auc in
          ((PLAIN, 0.9), (LATTICE, 0.8985), (LATTICE, 0.9005))),
    ]  # fmt: skip
    assert encryption.figures(found) == pytest.approx(
        {
            "add_ratio": 40.0,
            "tree_ratio.toy": 30.0,
            "memory_gb.toy": 2.0,
            "auc_gap.lattice.toy": 0.0005,
        }
    )


def test_scaled_figures_are_the_line_through_two_samples():
    samples = [
        of("samples", scheme=PAILLIER, wall_s=s, cpu_s=2 * s, sent=10.0 * n) | {"rows": n}
        for s, n in ((3.0, 1000), (5.0, 3000))
    ]
    (found,) = encryption.scaled(samples, 11_000)
    assert (found["wall_s"], found["cpu_s"], found["sent"]) == (13.0, 26.0, 110_000.0)
    assert (found["what"], found["rows"]) == ("trees", 11_000)
    assert found["scaled_from"] == [1000, 3000]


def test_trees_over_a_line_are_compared_by_the_median_of_their_jobs():
    def over(case, *wall):
        both = {"guest": 1.0, "host": 1.0}
        return [of("link", split="near, far", case=case, wall_s=s, sent=2e6, cpu_s=both,
                   peak=both) for s in wall]  # fmt: skip

    found = [*over("paillier-2048", 9.0, 12.0, 99.0), *over("lattice", 3.0)]
    trips = of("trips", coordinator="the guest's", a_layer=2.0, a_tree_more=3.0)
    assert encryption_link.figures([*found, trips]) == {
        "link_s.near_far.paillier-2048": 12.0, "link_mb.near_far.paillier-2048": 2.0,
        "link_s.near_far.lattice": 3.0, "link_mb.near_far.lattice": 2.0,
        "link_ratio.near_far.paillier.lattice": 4.0, "round_trips.the_guests": 2.0,
    }  # fmt: skip


def test_round_trips_are_what_a_layer_waits_more_for_on_a_longer_line(monkeypatch):
    def seconds(table, where, rtt_s, trees):
        calls = 7 if where == "of its own" else 3
        return {d: 0.2 + d * (0.01 + 2 * rtt_s) + calls * rtt_s for d in encryption_link.DEPTHS}

    monkeypatch.setattr(encryption_link, "_seconds", seconds)
    own, guests = encryption_link.trips("give_credit", encryption_link.QUICK)
    assert own["a_layer"] == pytest.approx(2.0)
    assert (own["a_tree_more"], guests["a_tree_more"]) == pytest.approx((7.0, 3.0))


def test_counts_of_a_tree_by_hand():
    job = Job(rows=100, columns=3, bins=4, depth=2)
    counts = job.counts()
    assert counts[ADD] == 100 * 3 * 1.5  # all rows, then half of them
    assert (counts["subtract"], counts["prefix sum"], counts["answer"]) == (12, 36, 27)


def test_the_faster_scheme_depends_on_the_link_and_no_lattice_takes_more_rows_than_it_can():
    ring, number = Price.of(RING), Price.of(operation(PAILLIER, 100_000.0, 512, 32))
    job = Job(10_000, 100)
    least = encryption_operations.break_even(ring, number, job)
    assert least is not None
    assert ring.seconds(job, 0.5 * least) > number.seconds(job, 0.5 * least)
    assert ring.seconds(job, 2.0 * least) < number.seconds(job, 2.0 * least)
    assert encryption_operations.break_even(number, ring, job) is None
    (table,) = encryption_operations.choices([RING, operation(PAILLIER, 100_000.0, 512, 32)])
    by_rows = {line[0]: line[2:] for line in table.rows}
    assert all(PAILLIER in cell for cell in by_rows["10,000,000"][:4])
    assert by_rows["10,000,000"][4] == "never"
    assert LATTICE in by_rows["1,000,000"][3]
    assert OKAMOTO_UCHIYAMA not in table.heads  # it was not measured


# Others


def test_what_leaks_is_said_of_the_defaults():
    found: Any = [
        of(SUMS, variant=variant, ratio=ratio, auc={"validation": auc}, attacks=[
            {"linking": "neighbours", "value": 0.2, "chance": 0.1},
            {"linking": privacy.PROGRAMME, "value": 0.15, "chance": 0.1},
        ])
        for variant, ratio, auc in ((privacy.DEFAULTS, 0.02, 0.7), ("no minimum", 0.9, 0.72))
    ]  # fmt: skip
    found.append(of(CLUSTERS, variant=privacy.DEFAULTS, attacks=[{"value": 0.8}]))
    told = {ALONE: 3, "sums": 12, APART: 1, "nodes": 4}
    found.append(of(TOTALS, least=5, told=told, auc={"validation": 0.77}))
    assert privacy.figures(found) == pytest.approx(
        {
            "ratio.toy": 0.02, "nearest_gain.toy": 2.0, "linking_gain.toy": 1.5,
            "auc_cost.toy": 0.02, "groupings_auc.toy": 0.8, "sums_of_one.5.toy": 0.25,
            "views_apart.5.toy": 0.25, "auc.5.toy": 0.77,
        }
    )  # fmt: skip


def test_alignments_are_compared_by_the_id():
    def aligned(method, sizes, seconds, **more):
        each = dict(zip(sizes, (1.0, 2.0, 3.0), strict=True))
        peak = {party: 1e9 * one for party, one in each.items()}
        spent = {"cpu": each, "peak": peak, "kinds": {"x": 300}, "link": None}
        return of("align", "1m", method=method, sizes=sizes, seconds=seconds,
                  **{**spent, "floors": {"clear": 0.5}, **more})  # fmt: skip

    sizes = {"guest": 10, "host1": 10, "host2": 30}
    floors = {"clear": 0.5, "link": 2.0}
    found = alignment.figures(
        [
            aligned("oprf", sizes, 3.0, link="8mbit,50ms", floors=floors),
            aligned("ecdh", {p: n // 10 for p, n in sizes.items()}, 30.0),
        ]
    )
    assert found["times_faster_an_id.1m"] == pytest.approx(100.0)
    assert (found["cpu_host.1m.oprf"], found["gb_host.1m.oprf"]) == (3.0, 3.0)
    assert found["bytes_per_id.1m.oprf"] == 10.0
    assert found["target_link.1m.oprf"] == pytest.approx(12.4)
    assert "target_link.1m.ecdh" not in found


def test_large_tables_have_figures_by_size_and_workers():
    memory = {"guest": 10**9, "host": 2 * 10**9}
    found: Any = [
        {**of("jobs"), "rows": 7, "workers": workers, "seconds": 2.5, "per_tree": s,
         "memory": memory, "scheme": "lattice"}
        for workers, s in (("embedded", 0.5), ("dask", 0.6))
    ]  # fmt: skip
    found.append({**of("predictions"), "rows": 100, "by": "job", "seconds": 4.0})
    figures = scale.figures(found)
    assert figures["rows_7.host.memory_gb"] == 2.0
    assert figures["rows_7.seconds_per_tree"] == 0.5
    assert figures["rows_7.dask.over_embedded"] == pytest.approx(1.2)
    assert figures["rows_100.job.rows_per_second"] == 25.0


UNITS = scale_model.Units(
    "ring",
    scale_model.Carries((0, 0, 1), (0, 8, 0), (0, 4, 0), 7, 3, 100),
    dict.fromkeys(NAMES, 1e9),
    row_bytes=16,
    candidate_bytes=1000,
    by_columns=True,
)


def test_the_model_of_a_tree_is_counts_times_prices():
    size = scale_model.Size(rows=1000, columns=5, workers=2, bins=4, depth=2)
    assert (size.rows_added, size.cells, size.candidates) == (1500, 40, 45)
    parts = scale_model.parts(UNITS, size)
    found = {part.part: part for part in parts}
    assert found["rows to workers"].bytes == 1000 * 2 * 8
    assert found["divisions to workers"].bytes == 1000 * 2 * 4
    assert found["add up"].seconds == 1500 * 3  # columns of the worker that has most
    assert found["keys to workers"].bytes == 2 * 7
    assert found["sums asked of workers"].bytes == 45 * 3
    assert found["sums from workers"].bytes == 45 * 100
    assert found["run up and answer"].seconds == pytest.approx((3 * 40 + 45) * 3 / 5)
    rows = [{"scheme": "ring", "worker_bytes": 1e9, **vars(part)} for part in parts]
    figures = scale_model.figures(rows)
    assert figures["model.ring.seconds_per_tree"] == sum(part.seconds for part in parts)
    link = sum(part.seconds for part in parts if part.who == scale_model.LINK)
    assert figures["model.ring.link_seconds"] == link
    assert figures["model.ring.worker_gb"] == 1.0
    *_, last, tree = scale_model.table(rows).rows
    assert (last[0], tree[0]) == ("of that the host's link", "a tree")


def test_widths_and_bounds_are_judged_by_their_worst():
    shapes = ((25, 3, -0.001, -0.002), (25, 5, -0.003, -0.009))
    found = [
        of("scores", trees=trees, depth=depth, bits=BITS_ENCRYPTED, mean=mean, worst=worst)
        for trees, depth, mean, worst in shapes
    ]
    found += [of("costs", bits=bits, sent=sent, wall_s=1.0) for bits, sent in
              ((BITS_ENCRYPTED, 98.0), (11, 100.0))]  # fmt: skip
    expected = {"mean_gap.toy": -0.003, "worst_gap.toy": -0.002, "bytes_ratio": 0.98}
    assert widths.figures(found) == {**expected, "time_ratio": 1.0}
    bounds = [{str(most): change for most in groups.BOUNDS} for change in (0.1, -0.2)]
    assert groups.figures(bounds)["8 groups, worst"] == -0.2
