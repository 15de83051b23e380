"""What a running daemon takes up of changed settings, and what it refuses in whole."""

import pytest

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig, Users
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.config.reloading import changed_keys, check_datasets, check_parties

HERE = {"listen": "127.0.0.1:1", "store": "var", "insecure_loopback": True}
PARTY = PartyConfig.model_validate(
    {
        **HERE,
        "name": "bank",
        "coordinator": {"name": "coord", "address": "127.0.0.1:2"},
        "peers": {"telco": "127.0.0.1:3"},
        "datasets": {"credit": {"path": "a.csv"}, "other": {"path": "b.csv"}},
    }
)
COORDINATOR = CoordinatorConfig.model_validate(
    {**HERE, "name": "coord", "parties": {"bank": "127.0.0.1:1", "telco": "127.0.0.1:3"}}
)


def with_(config, **changes):
    return config.model_copy(update=changes)


def test_policy_peers_data_and_retention_may_change():
    assert changed_keys(PARTY, with_(PARTY)) == []
    changed = with_(PARTY, peers={}, policy=Policy(approve="never"), datasets={})
    assert changed_keys(PARTY, changed) == ["peers", "datasets", "policy"]
    changed = with_(COORDINATOR, parties={"bank": "127.0.0.1:9"}, users=Users(read=("ana",)))
    assert changed_keys(COORDINATOR, changed) == ["parties", "users"]


@pytest.mark.parametrize("key", ["name", "listen", "store", "workers", "coordinator"])
def test_whatever_else_changes_needs_a_restart(key):
    changed = with_(PARTY, peers={}, **{key: "another"})
    with pytest.raises(ConfigError, match=f"{key}: a change needs a restart") as refused:
        changed_keys(PARTY, changed)
    assert "change only policy, peers, datasets, retention" in refused.value.todo


def test_what_a_job_that_runs_needs_stays():
    check_datasets(PARTY, with_(PARTY, datasets={"credit": PARTY.datasets["credit"]}), {"credit"})
    check_datasets(PARTY, with_(PARTY, datasets={}), {""})
    for other in ({}, {"credit": SourceSpec(path="c.csv")}):
        with pytest.raises(ConfigError, match=r"datasets\.credit is used by a running job"):
            check_datasets(PARTY, with_(PARTY, datasets=other), {"credit", ""})
    check_parties(COORDINATOR, with_(COORDINATOR, parties={"bank": "x"}), {"bank"})
    with pytest.raises(ConfigError, match=r"parties\.telco takes part in a running job"):
        check_parties(COORDINATOR, with_(COORDINATOR, parties={"bank": "x"}), {"bank", "telco"})
