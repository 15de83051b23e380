"""An XGBoost user's script, as it was and with the import and the data changed."""

import subprocess
import sys

import pytest

from tests.e2e import world

SCRIPT = """
from sklearn.model_selection import GridSearchCV
import numpy as np
import xgboost as xgb
{imports}

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 6))
y = (X[:, 0] + X[:, 4] + rng.normal(size=500) * 0.3 > 0).astype(int)
{data}

model = Classifier(n_estimators=10, max_depth=3, eval_metric=["auc"], early_stopping_rounds=3)
model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], verbose=False)
print("rounds", model.best_iteration >= 0, "auc", model.best_score > 0.9)
print("curve", len(list(model.evals_result().values())[-1]["auc"]) > model.best_iteration)

search = GridSearchCV(Classifier(n_estimators=4), {{"max_depth": [1, 3]}}, cv=2)
search.fit(X[:400], y[:400])
print("best", search.best_params_, search.score(X[400:], y[400:]) > 0.8)

booster = model.get_booster()
rows = xgb.DMatrix(X[400:], feature_names=booster.feature_names)
shares = booster.predict(rows, pred_contribs=True)
top = np.abs(shares).sum(axis=0)[:-1].argsort()[-2:]
print("explained", shares.shape, sorted(top.tolist()))
print("leaves", model.apply(X[400:]).shape[0], "importances", model.feature_importances_.shape)

model.save_model("model.json")
loaded = Classifier()
loaded.load_model("model.json")
print("loaded", np.array_equal(loaded.predict(X), model.predict(X)))
"""
ITS_OWN = {"imports": "from xgboost import XGBClassifier as Classifier", "data": ""}
OURS = {"imports": "from fedboost import SecureBoostClassifier as Classifier", "data": ""}


def printed(folder, **changed):
    file = folder / "script.py"
    file.write_text(SCRIPT.format(**changed))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(file)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


@world.JOBS
@pytest.mark.parametrize("name", ["xgboost", "fedboost"])
def test_an_xgboost_users_script_runs_with_the_import_changed(name, tmp_path):
    lines = printed(tmp_path, **{"xgboost": ITS_OWN, "fedboost": OURS}[name])
    assert lines == [
        "rounds True auc True",
        "curve True",
        "best {'max_depth': 3} True",
        "explained (100, 7) [0, 4]",
        "leaves 100 importances (6,)",
        "loaded True",
    ]
