"""Estimators whose `fit` is a job: what they learn, show, keep, refuse and leave behind."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from fedboost.ground.errors import ConfigError, DataError
from fedboost.sdk import (
    DeclaredTable,
    FederBoostClassifier,
    FederBoostRegressor,
    GBUNClassifier,
    HybridTreeClassifier,
    SecureBoostClassifier,
    SecureBoostRegressor,
)

FEW = {"n_estimators": 3, "max_depth": 3, "encryption": {"scheme": "plain"}}
SMALL = {"n_estimators": 3, "max_depth": 3, "max_bin": 8, "quantile_tolerance": 0}


def labelled(n=160, columns=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns))
    y = (x[:, 0] + x[:, columns - 1] + 0.3 * rng.normal(size=n) > 0).astype(int)
    return x, y


X, Y = labelled()
TABLES = {"bank": X[:, :3], "telco": X[:, 3:]}
ROWS = {"north": X[:90], "south": X[90:]}
OF_ROWS = {"north": Y[:90], "south": Y[90:]}


@pytest.fixture(scope="module")
def fitted():
    return SecureBoostClassifier(**FEW).fit(TABLES, np.array(["no", "yes"])[Y])


# What they learn


@pytest.mark.some(12, of="fits in Python")
def test_a_fit_is_a_job_whose_result_and_metrics_are_shown(fitted):
    assert fitted.result_["protocol"] == "secureboost"
    assert fitted.result_["rows"] == {"aligned": 160, "train": 160}
    assert fitted.parties_ == ("bank", "telco")
    assert fitted.columns_ == {"bank": ("f0", "f1", "f2"), "telco": ("f0", "f1", "f2")}
    assert fitted.feature_names_in_.tolist()[2:4] == ["bank.f2", "telco.f0"]
    assert fitted.evals_result_["train"]["auc"][-1] == fitted.history_[-1]["train"]["auc"]
    assert fitted.result_["metrics"]["train"]["auc"] == fitted.history_[-1]["train"]["auc"]
    assert fitted.best_round_ == 2


@pytest.mark.some(12, of="fits in Python")
def test_classes_keep_their_names_and_the_splits_owners_share_the_importance(fitted):
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert set(fitted.predict(TABLES)) == {"no", "yes"}
    np.testing.assert_allclose(fitted.predict_proba(TABLES).sum(axis=1), 1.0)
    assert fitted.score(TABLES, np.array(["no", "yes"])[Y]) > 0.8
    shares = fitted.feature_importances_
    assert shares.sum() == pytest.approx(1.0)
    assert {0, 5} == set(np.argsort(shares)[-2:].tolist())


@pytest.mark.some(12, of="fits in Python")
def test_a_single_table_is_dealt_and_learns_what_its_parts_learn(fitted):
    alone = SecureBoostClassifier(**FEW).fit(X, Y)
    np.testing.assert_array_equal(alone.predict_proba(X), fitted.predict_proba(TABLES))
    assert alone.parties_ == ("guest", "host")
    named = pa.table({f"c{k}": X[:, k] for k in range(6)})
    parties = {"bank": ["c0", "c1", "c2"], "telco": None}
    by_name = SecureBoostClassifier(**FEW, parties=parties).fit(named, Y)
    mixed = named.select(["c5", "c4", "c3", "c2", "c1", "c0"])
    np.testing.assert_array_equal(by_name.predict_proba(mixed), alone.predict_proba(X))
    assert by_name.feature_names_in_.tolist() == named.column_names


@pytest.mark.some(12, of="fits in Python")
def test_the_guest_is_the_first_party_or_the_one_that_is_named(fitted):
    turned = {"telco": TABLES["telco"], "bank": TABLES["bank"]}
    model = SecureBoostClassifier(**FEW, guest="bank").fit(turned, Y)
    assert model.parties_ == ("bank", "telco")
    np.testing.assert_array_equal(model.predict_proba(turned), fitted.predict_proba(TABLES))


@pytest.mark.parametrize("layout", ["by party", "one table"])
def test_a_column_of_labels_is_no_feature(layout):
    whole = pd.DataFrame(X, columns=[f"x{k}" for k in range(6)]).assign(y=Y)
    parts = {"bank": whole[["x0", "y", "x1", "x2"]], "telco": whole[["x3", "x4", "x5"]]}
    given = whole if layout == "one table" else parts
    model = SecureBoostClassifier(**FEW, parties=2).fit(given, "y", eval_set=(given, "y"))
    assert [name for names in model.columns_.values() for name in names] == list(whole)[:6]
    with pytest.raises(DataError, match="no column 'z'"):
        SecureBoostClassifier(**FEW).fit(given, "z")


@pytest.mark.parametrize("layout", ["by party", "one table"])
def test_a_column_of_labels_is_no_feature_of_rows(layout):
    whole = pd.DataFrame(X, columns=[f"x{k}" for k in range(6)]).assign(y=Y)
    given = whole if layout == "one table" else {"north": whole[:90], "south": whole[90:]}
    model = FederBoostClassifier(**SMALL, layout="horizontal", parties=2).fit(given, "y")
    assert set(model.columns_.values()) == {tuple(whole)[:6]}


@pytest.mark.some(12, of="fits in Python")
def test_ids_join_tables_whose_rows_are_others():
    order = np.random.default_rng(1).permutation(160)[:120]
    bank = pa.table({"id": np.arange(160), **{f"a{k}": X[:, k] for k in range(3)}, "y": Y})
    telco = pa.table({"nr": order.astype(str), **{f"b{k}": X[order, 3 + k] for k in range(3)}})
    ids = {"bank": "id", "telco": "nr"}
    model = SecureBoostClassifier(**FEW, ids=ids).fit({"bank": bank.drop("y"), "telco": telco}, Y)
    assert model.result_["rows"] == {"aligned": 120, "train": 120}
    with pytest.raises(DataError, match="40 of 160 rows of bank are missing at telco"):
        model.predict({"bank": bank, "telco": telco})
    both = bank.take(np.sort(order)).drop("y")
    turned = model.predict_proba({"bank": both, "telco": telco})
    straight = {"bank": X[np.sort(order), :3], "telco": X[np.sort(order), 3:]}
    same = SecureBoostClassifier(**FEW).fit(straight, Y[np.sort(order)])
    np.testing.assert_array_equal(turned, same.predict_proba(straight))


@pytest.mark.some(12, of="fits in Python")
def test_rows_of_eval_set_are_measured_and_decide_when_to_stop():
    noise = np.random.default_rng(3).integers(0, 2, 160)
    tables = {"bank": X[:100, :3], "telco": X[:100, 3:]}
    held = {"bank": X[100:, :3], "telco": X[100:, 3:]}
    model = SecureBoostClassifier(**{**FEW, "n_estimators": 30}, early_stopping_rounds=2)
    model.fit(tables, noise[:100], eval_set=(held, noise[100:]))
    assert model.result_["rows"] == {"aligned": 160, "train": 100, "validation": 60}
    assert len(model.history_) == model.best_round_ + 3 < 30
    assert model.best_iteration == model.best_round_
    *_, last = model.evals_result_["validation"].values()
    assert model.best_score == last[model.best_round_] == min(last)
    alone = SecureBoostClassifier(**{**FEW, "n_estimators": model.best_round_ + 1})
    alone.fit(tables, noise[:100])
    # The same trees, but that rows stand in the order of other ids.
    np.testing.assert_allclose(model.predict_proba(held), alone.predict_proba(held))


@pytest.mark.some(12, of="fits in Python")
def test_a_fit_whose_loss_grows_warns_and_discloses_no_more():
    steep = {"scale_pos_weight": 100.0, "base_score": 0.5, "max_depth": 1, "learning_rate": 0.3}
    model = SecureBoostClassifier(**FEW).set_params(**steep, n_estimators=5, eval_metric="logloss")
    with pytest.warns(UserWarning, match="the training logloss grew 3 rounds in a row"):
        model.fit(TABLES, Y)
    assert not any("logloss" in warning for warning in model.disclosure_.warnings)


@pytest.mark.some(12, of="fits in Python")
def test_validation_holds_out_rows_as_a_job_does():
    model = SecureBoostClassifier(**FEW, validation={"fraction": 0.25}).fit(X, Y)
    assert model.result_["rows"]["validation"] == 40
    assert set(model.evals_result_) == {"train", "validation"}
    with pytest.raises(ConfigError, match="both say which rows"):
        model.fit(X, Y, eval_set=(X, Y))


@pytest.mark.some(12, of="fits in Python")
def test_weights_count_and_categories_are_columns_of_their_own_kind():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[f"c{k}" for k in range(6)])
    table["town"] = pandas.Categorical(np.array(["u", "v", "w"])[np.arange(160) % 3])
    y = (np.arange(160) % 3 == 1).astype(int)
    model = SecureBoostClassifier(**FEW).fit(table, y)
    assert model.score(table, y) == 1.0
    heavy = SecureBoostClassifier(**FEW).fit(X, Y, sample_weight=np.where(Y == 1, 20.0, 0.02))
    assert heavy.predict(X).mean() > 0.9


@pytest.mark.some(12, of="fits in Python")
def test_numbers_and_sparse_tables_are_learned():
    target = X[:, 0] * 2.0 + X[:, 5]
    model = SecureBoostRegressor(**{**FEW, "n_estimators": 8}, parties=3).fit(X, target)
    assert model.score(X, target) > 0.5
    thin = csr_matrix(np.where(np.abs(X) < 0.7, 0.0, X))
    sparse = SecureBoostClassifier(**FEW).fit(thin, Y)
    assert sparse.score(thin, Y) > 0.7


@pytest.mark.parametrize("names", [["age", 0], [0, 1]])
def test_columns_named_by_numbers_are_found_by_name_at_prediction(names):
    table = pd.DataFrame(X[:, [0, 5]], columns=names)
    for given in (table, {"bank": X[:, 1:3], "telco": table}):
        model = SecureBoostClassifier(**FEW).fit(given, Y)
        turned = table[names[::-1]]
        other = turned if given is table else {**given, "telco": turned}
        np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(given))


def test_absent_entries_of_sparse_tables_are_missing_as_in_xgboost():
    thin = csr_matrix(np.where(np.abs(X) < 0.7, 0.0, X))
    holes = np.where(np.abs(X) < 0.7, np.nan, X)
    sparse, dense = (SecureBoostClassifier(**FEW).fit(one, Y) for one in (thin, holes))
    np.testing.assert_array_equal(sparse.predict_proba(thin), dense.predict_proba(holes))


# Other layouts


@pytest.mark.some(12, of="fits in Python")
def test_horizontal_tables_have_labels_of_their_own_and_one_model():
    model = FederBoostClassifier(layout="horizontal", **SMALL).fit(ROWS, OF_ROWS)
    found = model.predict(ROWS)
    assert {party: len(part) for party, part in found.items()} == {"north": 90, "south": 70}
    np.testing.assert_array_equal(np.concatenate(list(found.values())), model.predict(X))
    assert model.score(ROWS, OF_ROWS) == model.score(X, Y)
    assert model.n_features_in_ == 6
    assert set(model.disclosure_.bytes) > {"north->aggregator", "aggregator->south"}


@pytest.mark.some(12, of="fits in Python")
def test_horizontal_rows_to_validate_on_come_by_party_or_as_one_table():
    model = FederBoostClassifier(layout="horizontal", **SMALL)
    model.fit(ROWS, OF_ROWS, eval_set=(X[:33], Y[:33]))
    assert model.result_["rows"] == {"train": 160, "validation": 33}
    held = {"north": X[:18], "south": X[18:32]}, {"north": Y[:18], "south": Y[18:32]}
    model.fit(ROWS, OF_ROWS, eval_set=held)
    assert model.result_["rows"] == {"train": 160, "validation": 32}
    whole = FederBoostRegressor(layout="horizontal", **SMALL).fit(X, X[:, 0], eval_set=(X, X[:, 0]))
    assert whole.result_["rows"] == {"train": 160, "validation": 160}


@pytest.mark.some(12, of="fits in Python")
def test_networks_learn_from_tables_by_party_what_they_learn_from_one():
    fed = GBUNClassifier(outputs=8, n_estimators=4).fit(ROWS, OF_ROWS)
    alone = GBUNClassifier(outputs=8, n_estimators=4).fit(X, Y)
    np.testing.assert_allclose(fed.predict_proba(X), alone.predict_proba(X), atol=1e-4)
    assert len(fed.disclosure_) > 0 == len(alone.disclosure_)


def test_vertical_federboost_says_which_epsilon_it_spent():
    model = FederBoostClassifier(n_estimators=2, max_depth=2, epsilon=2.0).fit(TABLES, Y)
    assert model.disclosure_.epsilon == {"telco": 6.0}
    assert "telco told values of ε 6 a row" in repr(model.disclosure_)


@pytest.mark.some(12, of="fits in Python")
@pytest.mark.parametrize("split", ["scored", "unscored"])
def test_hybrid_hosts_have_columns_of_some_rows(split):
    scheme = {"scheme": "plain"} if split == "scored" else {"scheme": "okamoto-uchiyama"}
    bank = pa.table({"id": np.arange(160), **{f"a{k}": X[:, k] for k in range(3)}})
    some, others = np.arange(0, 160, 2), np.arange(1, 150, 2)
    shop = pa.table({"id": some, **{f"b{k}": X[some, 3 + k] for k in range(3)}})
    mill = pa.table({"id": others, **{f"b{k}": X[others, 3 + k] for k in range(3)}})
    tables = {"bank": bank, "shop": shop, "mill": mill}
    depths = {"guest_depth": 2, "host_depth": 2, "n_estimators": 1}
    model = HybridTreeClassifier(ids="id", split=split, encryption=scheme, **depths)
    model.fit(tables, Y)
    assert model.score(tables, Y) > 0.75
    if split == "scored":
        assert model.feature_importances_.sum() == pytest.approx(1.0)
    else:
        with pytest.raises(AttributeError, match="no gain"):
            _ = model.feature_importances_


# What they show and keep


def test_what_crossed_is_listed_message_by_message(fitted):
    found = fitted.disclosure_
    assert found.bytes == fitted.result_["bytes"]
    table = pa.table(found)
    assert {"EncryptedGradients", "CandidateSums"} <= set(table.column("message").to_pylist())
    assert sum(table.column("bytes").to_pylist()) == sum(found.bytes.values())
    assert found.released["telco"] == pytest.approx(fitted.result_["released"]["telco"]["counted"])
    assert "scheme hides nothing" in found.warnings[0]  # the scheme is plain
    assert "<table" in found._repr_html_()


def test_the_report_is_one_page_and_a_model_is_kept_without_pickle(fitted, tmp_path):
    assert "SecureBoostClassifier" in fitted.report(tmp_path / "r.html").read_text()
    again = SecureBoostClassifier.load(fitted.save(tmp_path / "kept"))
    np.testing.assert_array_equal(again.predict_proba(TABLES), fitted.predict_proba(TABLES))
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == ["no", "yes"]
    assert again.disclosure_ == fitted.disclosure_
    assert again.report(tmp_path / "again.html").exists()
    with pytest.raises(ConfigError, match="a SecureBoostClassifier was saved"):
        GBUNClassifier.load(tmp_path / "kept")
    with pytest.raises(ConfigError, match="no estimator was saved there"):
        GBUNClassifier.load(tmp_path)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_proba(TABLES), fitted.predict_proba(TABLES))


def test_parameters_are_a_jobs_and_the_nearest_is_named_for_an_unknown_one():
    with pytest.raises(ConfigError, match="no parameter 'max_dept'") as refused:
        SecureBoostClassifier(max_dept=3)
    assert refused.value.todo == "did you mean 'max_depth'?"
    model = SecureBoostClassifier(max_depth=np.int64(2), eval_metric=["auc"], random_state=5)
    assert model._job_params(model._protocol().params) == {
        "objective": "binary:logistic",
        "max_depth": 2,
        "eval_metric": ["auc"],
        "seed": 5,
    }


# What cannot be


@pytest.mark.parametrize(
    ("model", "args", "text"),
    [
        (SecureBoostClassifier(max_depth=99), (X, Y), "max_depth"),
        (SecureBoostClassifier(), ({"bank": X}, Y), "a federation needs two"),
        (SecureBoostClassifier(), (TABLES, OF_ROWS), "only the guest has labels"),
        (SecureBoostClassifier(), (TABLES, Y[:5]), "X has 160 rows and y 5 labels"),
        (SecureBoostClassifier(guest="x"), (TABLES, Y), "guest is 'x'"),
        (SecureBoostClassifier(seed=1, random_state=2), (X, Y), "seed is 1 and random_state is 2"),
        (SecureBoostClassifier(), (X, X[:, 0]), "Unknown label type: continuous"),
        (FederBoostClassifier(layout="round"), (X, Y), "layout is 'round'"),
        (FederBoostClassifier(buckets=4, layout="horizontal"), (X, Y), "buckets is no parameter"),
        (FederBoostClassifier(layout="horizontal"), (ROWS, Y), "y does not hold labels by party"),
        (SecureBoostRegressor(objective="binary:logistic"), (X, Y), "learns numbers"),
        (SecureBoostClassifier(n_jobs=0), (X, Y), "n_jobs is 0"),
        (SecureBoostClassifier(**FEW), (np.where(X > 2, np.inf, X), Y), "infinite values"),
        (SecureBoostClassifier(), (X, Y, None, X), "eval_set is of the type"),
    ],
)
def test_what_cannot_be_is_refused_as_a_value_error(model, args, text):
    with pytest.raises(ValueError, match=text):
        model.fit(*args)
    with pytest.raises(DataError, match="is not fitted"):
        model.predict(X)


def test_other_columns_and_parties_than_those_of_the_training_are_refused(fitted):
    with pytest.raises(DataError, match="the model's parties are bank, telco"):
        fitted.predict({"bank": X, "shop": X})
    with pytest.raises(DataError, match="no feature column"):
        fitted.predict({"bank": X[:, :1], "telco": X[:, 3:]})


# What they leave behind


@pytest.mark.some(12, of="fits in Python")
def test_a_fit_runs_where_a_loop_runs_already_and_in_several_threads(fitted):
    async def in_a_notebook():
        return SecureBoostClassifier(**FEW).fit(X, Y).predict_proba(X)

    found = [asyncio.run(in_a_notebook())]
    threads = [
        threading.Thread(
            target=lambda: found.append(SecureBoostClassifier(**FEW).fit(X, Y).predict_proba(X))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        np.testing.assert_array_equal(one, fitted.predict_proba(TABLES))


def test_nothing_is_left_of_a_fit_that_fails_or_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = threading.active_count()
    with pytest.raises(ConfigError, match="a bin needs"):
        FederBoostClassifier(layout="horizontal", max_bin=64).fit(X, Y)

    def stop(_):
        raise KeyboardInterrupt

    def interrupted(verbose, name):
        class Stops:
            def __enter__(self):
                return stop

            def __exit__(self, *_):
                return None

        return Stops()

    monkeypatch.setattr("fedboost.sdk.federated.watching", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SecureBoostClassifier(**FEW).fit(X, Y)
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 10.0
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread of the job may be at its last line
    assert threading.active_count() == before


@pytest.mark.some(3, of="processes of their own")
@pytest.mark.parametrize("scheme", ["paillier", "lattice"])
def test_ctrl_c_ends_a_program_and_its_workers(tmp_path, scheme):
    code = (
        "import numpy as np, os, sys; from fedboost.sdk import SecureBoostClassifier\n"
        "rng = np.random.default_rng(0); x = rng.normal(size=(3000, 4)); y = x[:, 0] > 0\n"
        "model = SecureBoostClassifier(n_estimators=500, verbose=True, n_jobs=2,\n"
        f"    encryption={{'scheme': {scheme!r}}})\n"
        "try:\n    model.fit(x, y)\n"
        "except KeyboardInterrupt:\n    print('stopped', os.listdir(os.environ['TMPDIR']))\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "stage align done" in line:
            break
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=120)
    assert said.strip() == "stopped []"
    assert "Traceback" not in errors
    assert "unhandled" not in errors
    assert not _of_session(process.pid)


def _of_session(leader):
    """The programs that still run in a session, but Python's own that ends behind the last."""
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it may be gone by now
            command = " ".join(process.cmdline())  # empty once a process has let go of all
            in_it = os.getsid(process.pid) == leader
            if in_it and command and "resource_tracker" not in command:
                left.append(command)
    return left


@pytest.mark.some(12, of="fits in Python")
def test_declared_tables_train_and_predict_what_their_numbers_do():
    commas = pa.table({f"c{k}": [f"{x:.3f}".replace(".", ",") for x in X[:, k]] for k in range(3)})
    ids = [str(n) for n in range(len(X))]
    bank = DeclaredTable(commas.append_column("nr", [ids]), decimal=",", id_format={"zfill": 4})
    numbers = pa.table({f"c{k}": np.round(X[:, k], 3) for k in range(3)})
    telco = pa.table({"nr": [n.zfill(4) for n in ids], "d": X[:, 5]})
    model = SecureBoostClassifier(**FEW, ids="nr").fit({"bank": bank, "telco": telco}, Y)
    assert model.result_["rows"]["aligned"] == len(X)
    padded = numbers.append_column("nr", [telco["nr"].to_pylist()])
    plain = {"bank": padded, "telco": telco}
    np.testing.assert_array_equal(
        model.predict_proba(plain), model.predict_proba({"bank": bank, "telco": telco})
    )


def test_each_partys_missing_number_trains_and_predicts_what_nan_does():
    holes = {party: np.where(rows < -1.0, np.nan, rows) for party, rows in TABLES.items()}
    own = {"bank": -9.0, "telco": 99.0}
    marked = {p: np.where(np.isnan(rows), own[p], rows) for p, rows in holes.items()}
    expected = SecureBoostClassifier(**FEW).fit(holes, Y).predict_proba(holes)
    model = SecureBoostClassifier(**FEW, missing=own).fit(marked, Y)
    np.testing.assert_array_equal(model.predict_proba(marked), expected)
    declared = {p: DeclaredTable(rows, missing=own[p]) for p, rows in marked.items()}
    model = SecureBoostClassifier(**FEW, missing=5).fit(declared, Y, eval_set=(declared, Y))
    np.testing.assert_array_equal(model.predict_proba(declared), expected)


def test_trees_are_bounded_and_ordered_under_xgboosts_names():
    few = {"max_leaves": 4, "grow_policy": "lossguide", "max_depth": 5}
    few |= {"colsample_bylevel": 0.8, "colsample_bynode": 0.8}
    model = SecureBoostClassifier(**{**FEW, **few}, monotone_constraints={"f0": 1}).fit(TABLES, Y)
    leaves = model.shards_["bank"].arrays["owner"].astype(int) < 0
    assert np.bincount(model.shards_["bank"].arrays["tree"][leaves]).max() == 4
    grid = np.linspace(-3, 3, 50)
    for row in range(5):
        bank, telco = (np.repeat(rows[row : row + 1], 50, axis=0) for rows in TABLES.values())
        bank[:, 0] = grid
        rising = model.predict({"bank": bank, "telco": telco}, output_margin=True)
        assert (np.diff(rising) >= 0).all()
    other = {"bank": X[:, :2], "telco": X[:, 2:]}
    with pytest.raises(ConfigError, match="column that the guest does not have"):
        SecureBoostClassifier(**FEW, monotone_constraints={"f2": 1}).fit(other, Y)


def test_one_missing_number_is_that_of_all_parties_with_rows_of_their_own():
    holes = np.where(X < -1.0, np.nan, X)
    marked = np.where(np.isnan(holes), -9.0, holes)
    fits = [
        FederBoostClassifier(layout="horizontal", **SMALL, missing=missing).fit(rows, Y)
        for rows, missing in ((holes, np.nan), (marked, np.float32(-9)))
    ]
    np.testing.assert_array_equal(fits[1].predict_proba(marked), fits[0].predict_proba(holes))


# Refusals


PANDAS_TWICE = pd.DataFrame(X, columns=["a", "b", "a", "c", "d", "d"])
REFUSED: dict[str, tuple[Any, tuple[Any, Any], dict[str, Any], str]] = {
    "no rows": ({}, (None, Y), {}, "X is None, not a table"),
    "a number": ({}, (5, Y), {}, "X is of the type int, not a table"),
    "a text as missing": ({"missing": "x"}, (X, Y), {}, "missing is 'x', expected a finite"),
    "a stranger's missing": ({"missing": {"a": 0}}, (X, Y), {}, "missing names 'a'; the tables"),
    "a path": ({}, ("rows.csv", Y), {}, "X is of the type str, not a table"),
    "a party without a table": ({}, ({"a": X, "b": None}, Y), {}, "the table of b is None"),
    "ragged rows": ({}, ([[1, 2], [3]], [0, 1]), {}, "X has rows of different lengths"),
    "one column": ({}, (X[:, 0], Y), {}, "X has 1 dimensions, expected rows and columns"),
    "columns twice": ({}, (PANDAS_TWICE, Y), {}, "X has several columns of one name: a, d"),
    "columns twice in Arrow": (
        {},
        (pa.table([X[:, 0], X[:, 1]], names=["a", "a"]), Y),
        {},
        "X has several columns of one name: a",
    ),
    "no labels": ({}, (X, None), {}, "the target y is None"),
    "other labels": ({}, (X, Y[:9]), {}, "X has 160 rows and y 9 labels"),
    "eval_set 5": ({}, (X, Y), {"eval_set": 5}, "eval_set is of the type int, expected rows"),
    "eval_set of one": ({}, (X, Y), {"eval_set": (X,)}, "of the type tuple with 1 entries"),
    "eval_set without rows": (
        {},
        (X, Y),
        {"eval_set": (None, Y)},
        "(?s)X is None.*argument eval_set",
    ),
    "categories of no column": ({"categorical": ["f9"]}, (X, Y), {}, "column 'f9' that no table"),
    "ids 5": ({"ids": 5}, (X, Y), {}, "ids is 5, expected names of columns"),
    "ids with a number": ({"ids": ["a", 1]}, (X, Y), {}, "ids is \\['a', 1\\], expected names"),
    "ids twice": ({"ids": ["f0", "f0"]}, (X, Y), {}, "ids is"),
    "ids of no column": ({"ids": "nr"}, (X, Y), {}, "the table has no column 'nr'"),
    "ids by party 5": ({"ids": {"bank": 5, "telco": 5}}, (TABLES, Y), {}, "ids is 5, expected"),
}


@pytest.mark.some(12, of="fits in Python")
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_fitted_is_one_error_with_what_to_do(wrong):
    params, given, more, text = REFUSED[wrong]
    with pytest.raises(ValueError, match=text) as refused:
        SecureBoostClassifier(**FEW, **params).fit(*given, **more)
    assert isinstance(refused.value, ConfigError | DataError)
    assert refused.value.todo
    assert f"to do: {refused.value.todo}" in str(refused.value)
    assert refused.value.__cause__ is None
