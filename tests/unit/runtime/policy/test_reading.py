"""What the coordinator reads of a party's words."""

from fedboost.messages.job_pb2 import Curve, Metric, RoundTold, StatusReport
from fedboost.runtime.policy.reading import allowed_report

SPLITS = ("train", "validation", "train")


def told():
    metrics = [Metric(split=split, name="auc", value=0.5) for split in SPLITS]
    curves = [Curve(split=split, name="roc") for split in SPLITS]
    rounds = [RoundTold(round="tree", metrics=metrics)]
    return StatusReport(metrics=metrics, best=metrics, rounds=rounds, curves=curves)


def splits(heard):
    parts = heard.metrics, heard.best, heard.rounds[0].metrics, heard.curves
    return [[one.split for one in part] for part in parts]


def test_all_that_a_policy_tells_is_heard():
    assert allowed_report(told(), ("metrics", "curves")) == told()


def test_metrics_and_curves_are_kept_back_by_name():
    assert splits(allowed_report(told(), ("curves",))) == [[], [], [], [*SPLITS]]
    assert splits(allowed_report(told(), ("metrics",))) == [[*SPLITS]] * 3 + [[]]
