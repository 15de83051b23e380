"""Is a prediction on categories that the model does not know refused, or warned of?"""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.data.predictions import unknown_shares
from fedboost.ground import mapped
from fedboost.model.unknown_categories import RARE
from fedboost.sdk import FederBoostClassifier, HybridTreeClassifier, SecureBoostClassifier
from fedboost.sdk.refusals import InvalidTableError
from tests.support.federated import PLAIN, job_spec, now, run_jobs

ROWS = 600
PARTIES = ("bank", "telco")
KNOWN = ("basic", "gold", "trial")
COUNTRIES = tuple(f"land{n:02d}" for n in range(41))


def tables(column, known=KNOWN, rows=ROWS):
    """Tables of two parties, each with a categorical column of that name; `known` occur alike."""
    rng = np.random.default_rng(3)
    ids, kinds = [f"c{n}" for n in range(rows)], [known[n % len(known)] for n in range(rows)]
    label = np.array([kind == known[0] for kind in kinds]) ^ (rng.random(rows) < 0.1)
    bank = {"id": ids, "y": label.astype(int), "age": rng.normal(size=rows)}
    telco = {"id": ids, "calls": rng.normal(size=rows)}
    (bank if column == "branch" else telco)[column] = kinds
    return {"bank": pa.table(bank), "telco": pa.table(telco)}


def changed(given, column, change, share=1.0):
    """The same tables, the first rows of the column changed."""
    party = "bank" if column == "branch" else "telco"
    cells = given[party][column].to_pylist()
    count = round(share * len(cells))
    fresh = [change(cell) for cell in cells[:count]] + cells[count:]
    place = given[party].column_names.index(column)
    return {**given, party: given[party].set_column(place, column, pa.array(fresh))}


def predicted(folder, given, new, protocol="secureboost", declared=None, **params):
    """A training on some tables and a prediction on others."""
    column = "branch" if "branch" in given["bank"].column_names else "seg"
    data = {"bank" if column == "branch" else "telco": {"categorical": [column]}}
    depths = {"guest_depth": 1, "host_depth": 1} if protocol == "hybridtree" else {}
    how = {"n_estimators": 3, "max_depth": 2, **depths}
    crypto = {} if protocol == "federboost-vertical" else PLAIN
    epsilon = {"epsilon": None} if protocol == "federboost-vertical" else {}
    spec = job_spec(protocol, PARTIES, data=data, params={**how, **crypto, **epsilon})

    def scoring(done):
        assert done.state == "finished", done.error.lines()
        for party, table in new.items():
            pq.write_table(table, folder / f"{party}.parquet")
        scores = {"model": done.journal.status.id, **params}
        if protocol == "hybridtree":
            return job_spec("predict-hybrid", PARTIES, params={"split": "scored", **scores})
        return job_spec("predict", PARTIES, params=scores)

    return now(run_jobs(folder, given, [spec, scoring], declared=declared))


@pytest.mark.parametrize("protocol", ["secureboost", "federboost-vertical", "hybridtree"])
@pytest.mark.parametrize("column", ["branch", "seg"])
def test_a_table_of_unknown_categories_is_refused_and_its_owner_reads_why(
    tmp_path, column, protocol
):
    given = tables(column)
    _, refused = predicted(tmp_path, given, changed(given, column, str.upper), protocol)
    assert refused.state == "failed"
    assert refused.error.what == (
        "600 of 600 values are categories that the model does not know; unknown_max allows 20 %"
    )
    assert refused.error.where["column"] == column
    assert refused.error.todo.startswith("write capital letters as the training table did")


def test_a_job_may_read_unknown_categories_as_missing_and_says_how_many(tmp_path, caplog):
    given = tables("branch")
    new = changed(given, "branch", str.upper, share=0.5)
    with caplog.at_level(logging.WARNING):
        _, done = predicted(tmp_path, given, new, unknown_max=0.5)
    (warning,) = done.result["warnings"]
    assert warning == (
        "bank: a column has categories that the model does not know, and reads as missing: "
        "branch (300 of 600 values)"
    )
    assert warning in caplog.text
    (written,) = (tmp_path / "cluster" / "var" / "bank" / "predictions").iterdir()
    assert unknown_shares(written) == {"branch": 0.5}
    missing = changed(given, "branch", lambda _: None, share=0.5)
    _, expected = predicted(tmp_path / "missing", given, missing)
    assert done.predictions.equals(expected.predictions)


def test_known_categories_are_no_warning(tmp_path):
    given = tables("seg")
    _, done = predicted(tmp_path, given, given)
    assert "warnings" not in done.result


@pytest.mark.parametrize("batched", [False, True])
def test_unknown_categories_of_a_large_table_are_counted(tmp_path, monkeypatch, batched):
    if batched:
        monkeypatch.setattr("fedboost.runtime.party.job.table.LARGE_ROWS", 1)
        monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 50)
        monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 1)
    given = tables("branch")
    _, refused = predicted(tmp_path, given, changed(given, "branch", lambda _: "Alien", share=0.3))
    assert refused.error.what.startswith("180 of 600 values are categories that the model does not")


@pytest.mark.parametrize("column", ["branch", "seg"])
@pytest.mark.parametrize("bound", [32, None])
def test_rare_categories_are_known_and_training_says_that_it_merges_them(tmp_path, column, bound):
    given = tables(column, COUNTRIES)
    declared = {party: {"bins_max": bound} for party in PARTIES}
    trained, done = predicted(tmp_path, given, given, declared=declared)
    (warning,) = trained.result["warnings"]
    assert f"{column} has 41 and keeps 32; the others are 21 % of its values" in warning
    party = "bank" if column == "branch" else "telco"
    assert len(trained.shards[party].facts[RARE][column]) == 9
    assert done.state == "finished", done.error.lines()
    assert "warnings" not in done.result


MODELS = [
    (SecureBoostClassifier, {"encryption": {"scheme": "plain"}, "max_depth": 2}),
    (FederBoostClassifier, {"epsilon": None, "max_depth": 2}),
    (HybridTreeClassifier, {"encryption": {"scheme": "plain"}, "guest_depth": 1, "host_depth": 1}),
]


@pytest.mark.parametrize(("kind", "params"), MODELS)
def test_estimators_refuse_unknown_categories_or_warn_of_them(kind, params):
    given = tables("seg")
    label = given["bank"]["y"].to_numpy()
    known = {"bank": given["bank"].drop(["y"]), "telco": given["telco"]}
    model = kind(n_estimators=3, ids="id", categorical=["seg"], **params).fit(known, label)
    strange = changed(known, "seg", str.upper, share=0.25)
    with pytest.raises(InvalidTableError, match="150 of 600 values are categories") as refused:
        model.predict(strange)
    assert refused.value.where == {"column": "seg", "party": "telco"}
    with pytest.warns(UserWarning, match=r"seg \(150 of 600 values\)") as warned:
        found = model.predict_proba(strange, unknown_max=0.25)
    assert warned[0].filename == __file__
    missing = changed(known, "seg", lambda _: None, share=0.25)
    np.testing.assert_array_equal(found, model.predict_proba(missing))


def test_a_file_without_unknown_categories_has_no_note(tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "p.parquet")
    assert unknown_shares(tmp_path / "p.parquet") == {}
