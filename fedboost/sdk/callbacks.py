"""Callbacks of `fit`, in XGBoost's shape, and those for MLflow, Weights & Biases and TensorBoard.

    model.fit(X, y, eval_set=(X_held, y_held), callbacks=[MLflowCallback()])

Each library is an extra, ``mlflow``, ``wandb`` or ``tensorboard``; in a clone:
``pip install -e '.[mlflow]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from fedboost.messages.job_pb2 import Event
from fedboost.sdk.refusals import InvalidParameterError
from fedboost.sdk.xgboost_parameters import XGBOOST_PARAMETERS

EvalsLog = dict[str, dict[str, list[float]]]  # part of the rows, metric: a value for each round


class FitOptions(TypedDict, total=False):
    """Options of `fit` beside tables and labels, by XGBoost's names."""

    verbose: (
        bool | int | None
    )  # print the metrics of every round, or of every so many; False: nor warn
    callbacks: Sequence[Any] | None  # objects that receive the metrics; see `TrainingCallback`
    xgb_model: Any  # fitted estimator of the same parties and columns, or its file: continue it
    sample_weight_eval_set: Sequence[Any] | None  # weights of each set of `eval_set`
    base_margin: None  # XGBoost's options that have no meaning here
    base_margin_eval_set: None
    feature_weights: None


class TrainingCallback:
    """The base of callbacks; any object with these methods will do, such as XGBoost's
    `EvaluationMonitor`.
    """

    def before_training(self, model: Any) -> Any:
        """Hear that `model`, an estimator, is about to be trained."""

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Hear the metrics up to round `epoch`, from 0. True would stop the training, which parties
        do not offer: `fit` raises an InvalidParameterError then.
        """
        return False

    def after_training(self, model: Any) -> Any:
        """Hear that `model` is fitted."""


class EvaluationMonitor(TrainingCallback):
    """Print the metrics of every `period`-th round: ``[0] train-auc:0.7``."""

    def __init__(self, period: int = 1, write: Callable[[str], Any] = print) -> None:
        self.period, self._write = period, write

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Print one line."""
        if epoch % self.period == 0:
            values = [f"{name}:{value:.5f}" for name, value in _last_metrics(evals_log).items()]
            self._write("\t".join([f"[{epoch}]", *values]))
        return False


class _LogTo(TrainingCallback):
    """Hand each round's metrics to a library, by name and round."""

    def __init__(self, log: Callable[[dict[str, float], int], Any]) -> None:
        self._log = log

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Log one value of each metric."""
        self._log(_last_metrics(evals_log), epoch)
        return False


class MLflowCallback(_LogTo):
    """Log parameters and metrics to the active MLflow run, or one that MLflow starts."""

    def __init__(self) -> None:
        import mlflow

        self._mlflow = mlflow
        super().__init__(lambda values, epoch: mlflow.log_metrics(values, step=epoch))

    def before_training(self, model: Any) -> None:
        """Log the parameters that differ from their defaults."""
        self._mlflow.log_params(model.said())


class WandbCallback(_LogTo):
    """Log parameters and metrics to the Weights & Biases run that `wandb.init` has started."""

    def __init__(self) -> None:
        import wandb

        self._wandb = wandb
        super().__init__(lambda values, epoch: wandb.log(values, step=epoch))

    def before_training(self, model: Any) -> None:
        """Log the parameters that differ from their defaults."""
        self._wandb.config.update(model.said())


class TensorBoardCallback(_LogTo):
    """Log metrics to a `SummaryWriter`, tensorboardX's or torch's."""

    def __init__(self, writer: Any) -> None:
        def log_scalars(values: dict[str, float], epoch: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, epoch)

        super().__init__(log_scalars)


class RoundCallbacks:
    """Turns a job's events into calls of callbacks, in the thread that called `fit`."""

    def __init__(self, model: Any, callbacks: Sequence[Any], names: Mapping[str, str]) -> None:
        self._model, self._names = model, names
        self.hooks = [callback for callback in callbacks if not _is_early_stopping(callback)]
        self._stopping = [callback for callback in callbacks if _is_early_stopping(callback)]
        self._log: EvalsLog = {}
        self._epoch = 0

    def __call__(self, event: Event) -> None:
        """Handle one event; ignore events that end no round with metrics."""
        if event.WhichOneof("what") != "round" or not event.round.metrics:
            return
        for metric in event.round.metrics:
            of_split = self._log.setdefault(self._names.get(metric.split, metric.split), {})
            of_split.setdefault(metric.name, []).append(metric.value)
        for callback in self.hooks:
            if callback.after_iteration(self._model, self._epoch, self._log):
                raise InvalidParameterError(
                    f"{type(callback).__name__} stops the training, which callbacks cannot do here",
                    todo="set early_stopping_rounds",
                )
        self._epoch += 1

    def stopping_rounds(self, metric: str) -> int | None:
        """Return the rounds of XGBoost's EarlyStopping among the callbacks; None without one.

        Refuse one that decides by anything but the job's last `metric` on the last set.
        """
        rounds = None
        for callback in self._stopping:
            for asked, known in (
                (callback.data, self._names["validation"]),
                (callback.metric_name, metric),
            ):
                if asked not in (None, known):
                    raise InvalidParameterError(
                        f"EarlyStopping decides by {asked}, and a job by {known}",
                        todo="name the metric last in eval_metric, and its rows last in eval_set",
                    )
            if callback.maximize is not None or callback._min_delta:
                raise InvalidParameterError(
                    "EarlyStopping has maximize or min_delta, and here any better value counts",
                    todo="leave them out",
                )
            rounds = int(callback.rounds)
        return rounds


NO_OPTIONS = {  # of `fit`
    "eval_metric": "give it to the estimator, as in XGBoost",
    "early_stopping_rounds": "give it to the estimator, as in XGBoost",
    "group": "no protocol ranks rows within groups",
    "qid": "no protocol ranks rows within groups",
}
NO_VALUES = {
    "base_margin": "continue a fitted model with xgb_model, or set base_score for all rows",
    "base_margin_eval_set": "set base_score, one first prediction for all rows",
    "feature_weights": XGBOOST_PARAMETERS["feature_weights"].todo,
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a TypeError, as Python does, for an option that `fit` does not have; an
    InvalidParameterError for a value of XGBoost's without a meaning here.
    """
    for name, value in options.items():
        if name not in FitOptions.__annotations__:
            todo = f": {NO_OPTIONS[name]}" if name in NO_OPTIONS else ""
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}{todo}")
        if name in NO_VALUES and value is not None:
            raise InvalidParameterError(f"{name} has no effect here", todo=NO_VALUES[name])


# Callbacks of XGBoost that change the training, which is the parties'.
TRAINING_CALLBACKS = {
    "LearningRateScheduler": "set learning_rate, one number for all rounds",
    "TrainingCheckPoint": "save the fitted estimator with save_model",
}


def chosen_callbacks(options: FitOptions, of_estimator: Sequence[Any] | None = None) -> list[Any]:
    """Return the callbacks of an estimator and of its `fit`, with one that prints every
    `verbose`-th round.
    """
    callbacks = [*(of_estimator or ()), *(options.get("callbacks") or ())]
    verbose = options.get("verbose") or False
    for callback in callbacks:
        name, is_theirs = type(callback).__name__, type(callback).__module__.startswith("xgboost.")
        if is_theirs and name in TRAINING_CALLBACKS:
            raise InvalidParameterError(
                f"xgboost's {name} changes the training, which callbacks cannot do here",
                todo=TRAINING_CALLBACKS[name],
            )
        if not hasattr(callback, "after_iteration"):
            raise InvalidParameterError(
                f"a callback is of the type {type(callback).__name__}",
                todo="give objects with after_iteration(model, epoch, evals_log)",
            )
    if not isinstance(verbose, int) or verbose < 0:
        raise InvalidParameterError(
            f"verbose of fit is {verbose!r}", todo="True, False, or print every so many rounds"
        )
    return [*callbacks, EvaluationMonitor(int(verbose))] if verbose else callbacks


def _is_early_stopping(callback: Any) -> bool:
    kind = type(callback)
    return kind.__name__ == "EarlyStopping" and kind.__module__.startswith("xgboost.")


def _last_metrics(evals_log: EvalsLog) -> dict[str, float]:
    return {
        f"{split}-{name}": values[-1]
        for split, metrics in evals_log.items()
        for name, values in metrics.items()
    }
