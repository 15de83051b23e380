"""Names of parameters in XGBoost, LightGBM and scikit-learn, and their names here."""

from __future__ import annotations

from collections.abc import Container, Mapping

CALLED: Mapping[str, tuple[str, ...]] = {  # a parameter's other names
    "objective": ("loss", "application"),
    "num_class": ("num_classes", "n_classes"),
    "n_estimators": ("num_boost_round", "num_round", "num_iterations", "num_trees", "max_iter"),
    "learning_rate": ("eta", "shrinkage_rate"),
    "reg_lambda": ("lambda", "lambda_l2", "l2_regularization"),
    "reg_alpha": ("alpha", "lambda_l1"),
    "gamma": ("min_split_loss", "min_split_gain", "min_gain_to_split"),
    "min_child_weight": ("min_sum_hessian_in_leaf", "min_sum_hessian"),
    "max_depth": ("depth",),
    "monotone_constraints": ("monotonic_cst",),
    "max_leaves": ("num_leaves", "max_leaf_nodes"),
    "max_bin": ("max_bins",),
    "subsample": ("bagging_fraction", "row_subsample"),
    "colsample_bytree": ("feature_fraction",),
    "colsample_bynode": ("feature_fraction_bynode", "max_features"),
    "early_stopping_rounds": ("early_stopping_round", "n_iter_no_change"),
    "eval_metric": ("metric",),
    "seed": ("random_state", "random_seed"),
}  # fmt: skip
REASONS: Mapping[tuple[str, ...], str] = {
    ("min_child_samples", "min_data_in_leaf", "min_samples_leaf"): "leaves have a least hessian "
    "sum, not a number of rows: set min_child_weight",
    ("n_jobs", "nthread", "num_threads", "device"): "leave it out: each daemon's own file says "
    "how many processes it has",
    ("tree_method", "booster", "boosting_type", "verbosity", "verbose"): "leave it out: here there "
    "is only one way",
    ("interaction_constraints",): "leave it out: splits are not constrained",
    ("missing",): "leave it out: each party's number that means missing stands under data",
    ("enable_categorical", "categorical_feature", "cat_features"): "leave it out: each party's "
    "categorical columns stand under data",
}
_NAMES = {other: name for name, others in CALLED.items() for other in others}
_REASONS = {name: reason for names, reason in REASONS.items() for name in names}


def name_remedy(name: str, known: Container[str]) -> str | None:
    """Return advice about a parameter's name from another library; None if we know none.

    It names one of the `known` parameters, or the reason for its absence.
    """
    if (ours := _NAMES.get(name)) is not None and ours in known:
        return f"write {ours!r}, the name of {name} here"
    return _REASONS.get(name)
