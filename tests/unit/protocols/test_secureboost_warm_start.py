"""What a job that continues a model may say, and what its parties refuse."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.core.binning import Binning
from fedboost.flow import MODEL, Artefact
from fedboost.ground.errors import ConfigError, DataError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols import load_all, load_protocol
from fedboost.protocols.secureboost import earlier
from fedboost.protocols.secureboost import host as host_steps
from fedboost.protocols.secureboost.params import SecureBoostParams
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, Room, changing, now

TREES = 2  # of the model that the tiny job continues


def said(**params):
    return parse_settings(SecureBoostParams, {"warm_start": "first-0a1b2c3d", **params})


# Stages


def test_a_job_that_continues_a_model_scores_its_rows_before_it_trains():
    protocol = load_protocol("secureboost")
    assert protocol.stages(parse_settings(SecureBoostParams, {})) == ("align", "secureboost")
    assert protocol.stages(said()) == ("align", "predict", "secureboost")
    assert protocol.used_model(said()) == "first-0a1b2c3d"
    assert protocol.used_model(parse_settings(SecureBoostParams, {})) is None


def test_a_prediction_names_its_model_and_other_protocols_name_none():
    predict = load_protocol("predict")
    params = parse_settings(predict.params, {"model": "m-1"})
    assert predict.used_model(params) == "m-1"
    assert predict.stages(params) == ("align", "predict")
    assert (
        load_protocol("echo").used_model(parse_settings(load_protocol("echo").params, {})) is None
    )


def test_stages_behind_a_model_take_the_params_they_are_given():
    for protocol in load_all().values():
        for name, params in protocol.model.before.items() if protocol.model else ():
            given = parse_settings(load_protocol(name).params, {"model": "m-1", **params})
            assert given.model_dump()["model"] == "m-1"


# What a job may say


@pytest.mark.parametrize("model", ["", "Model", "../model", "a" * 81, "-a", 7], ids=repr)
def test_what_is_no_models_id_is_refused(model):
    with pytest.raises(ConfigError, match="warm_start"):
        said(warm_start=model)


def test_a_base_score_beside_a_model_is_refused():
    with pytest.raises(ConfigError, match="leave base_score out"):
        said(base_score=0.5)


def facts(role="guest", protocol="secureboost", **params):
    kept = {"objective": "binary:logistic", "num_class": None, "multi_output": False, **params}
    own = {"params": kept} if role == "guest" else {}
    return {"protocol": protocol, "role": role, "categories": {}, **own}


CLASSES = {"objective": "multi:softprob", "num_class": 3, "multi_output": False}


@pytest.mark.parametrize(
    ("job", "model", "name"),
    [
        ({}, {"objective": "reg:squarederror"}, "objective"),
        (CLASSES, {}, "objective"),
        (CLASSES, {**CLASSES, "num_class": 4}, "num_class"),
        ({**CLASSES, "multi_output": True}, CLASSES, "multi_output"),
        (CLASSES, {**CLASSES, "multi_output": True}, "multi_output"),
    ],
)
def test_a_model_of_another_objective_or_shape_is_refused(job, model, name):
    with pytest.raises(ConfigError, match=f"{name} is .*, that of the model") as refused:
        earlier.check_model(said(**job), facts(**model))
    assert refused.value.todo.startswith(f"set {name} as the model has it")


def test_a_model_of_the_same_shape_is_continued_whatever_else_has_changed():
    earlier.check_model(said(), facts(max_depth=9, learning_rate=0.01, base_score=0.5))
    earlier.check_model(said(**CLASSES), facts(**CLASSES))
    earlier.check_model(said(**CLASSES), facts(role="host"))  # a host does not know


@pytest.mark.parametrize("role", ["guest", "host"])
def test_a_model_with_more_categories_than_bins_is_refused(role):
    model = {**facts(role=role), "categories": {"city": ["a", "b", "c", "d"]}}
    earlier.check_model(said(max_bin=4), model)
    with pytest.raises(ConfigError, match="knows 4 categories") as refused:
        earlier.check_model(said(max_bin=3), model)
    assert refused.value.where["column"] == "city"


@pytest.mark.parametrize("role", ["guest", "host"])
def test_a_model_of_another_protocol_is_refused(role):
    with pytest.raises(ConfigError, match="a model of gbun"):
        earlier.check_model(said(), facts(role=role, protocol="gbun"))


# What a host refuses


def ended(alter):
    with pytest.raises(PeerError) as refused:
        now(conversations.warm_start(alter).walk())
    return refused.value


def changed_key(first_tree):
    def lie(key):
        key.first_tree = first_tree

    return changing("EncryptionKey", lie)


@pytest.mark.parametrize("first_tree", [0, TREES + 1, 2**32 - 1])
def test_more_earlier_trees_than_a_host_knows_of_are_refused(first_tree):
    error = ended(changed_key(first_tree))
    assert f"the guest begins at tree {first_tree}, expected" in error.what
    assert f"at most its {TREES} trees" in error.what
    assert error.where["step"] == "accept_key"


@pytest.mark.parametrize("first_tree", [1, 2**32 - 1])
def test_earlier_trees_of_a_job_that_continues_no_model_are_refused(first_tree):
    with pytest.raises(PeerError, match="the job continues no model"):
        now(conversations.secureboost(changed_key(first_tree)).walk())


@pytest.mark.parametrize("first_tree", [1, 2, 4, 5])
def test_a_first_tree_amid_the_classes_of_a_round_is_refused(first_tree):
    context = conversations.warm_start().contexts[HOSTS[0]]
    model = Artefact(
        {**context.artefacts[MODEL].facts, "trees": 6, "trees_per_round": 3, "forest": [1, 1]}, {}
    )
    context = replace(context, params=said(**CLASSES), artefacts={MODEL: model})
    with pytest.raises(PeerError, match="whole rounds of the model"):
        earlier.check_first_tree(context, first_tree)
    earlier.check_first_tree(context, 3)
    earlier.check_first_tree(context, 6)


def test_a_first_tree_amid_a_forest_is_refused():
    context = conversations.warm_start().contexts[HOSTS[0]]
    model = Artefact({**context.artefacts[MODEL].facts, "trees": 7, "forest": [4, 2, 1]}, {})
    context = replace(context, artefacts={MODEL: model})
    for first_tree in (4, 6, 7):
        earlier.check_first_tree(context, first_tree)
    for first_tree in (1, 3, 5, 8):
        with pytest.raises(PeerError, match="whole rounds of the model"):
            earlier.check_first_tree(context, first_tree)


@pytest.mark.parametrize("tree", [0, 1, 3])
def test_trees_are_counted_behind_those_of_the_model(tree):
    def lie(part):
        part.tree = tree

    error = ended(changing("EncryptedGradients", lie))
    assert f"began tree {tree}, expected tree {TREES}" in error.what


def test_a_guest_that_begins_elsewhere_after_a_break_is_refused():
    room, host = conversations.warm_start(), HOSTS[0]

    async def run():
        await room.until("start_round")
        me = room.state(host)
        key = next(p.message for p in room.posted if p.envelope.receiver == host)
        host_steps.accept_key(me, key)  # the same again, as a resumed job has it
        other = pb.EncryptionKey()
        other.CopyFrom(key)
        other.first_tree = 1
        with pytest.raises(PeerError, match="begins at tree 1, it began at 2 before"):
            host_steps.accept_key(me, other)

    now(run())


# What a table must have


@pytest.mark.parametrize("party", [GUEST, HOSTS[1]])
def test_a_table_without_a_column_of_the_model_is_refused(party):
    room = conversations.warm_start()
    context = room.contexts[party]
    assert context.frame is not None
    renamed = replace(
        context.frame, columns=tuple(f"new{i}" for i in range(len(context.frame.columns)))
    )
    contexts = {**room.contexts, party: replace(context, frame=renamed)}
    with pytest.raises(DataError, match="columns of the model") as refused:
        now(Room(room.protocol, contexts).walk())
    assert refused.value.where["column"] == "c0"


# What a host says of its own share


@pytest.mark.parametrize(
    ("mode", "host", "last", "trees"),
    [
        ("default", HOSTS[0], 3, 4),
        ("mix", HOSTS[0], 4, 7),  # bank, telco, shop, bank, telco: shop's and bank's may follow
        ("mix", HOSTS[1], 2, 5),
        ("mix", HOSTS[1], -1, 2),  # its first turn never came
        ("mix", HOSTS[1], 8, 9),  # the job has no more rounds
    ],
)
def test_a_host_counts_trees_that_it_need_not_have_heard_of(mode, host, last, trees):
    context = conversations.secureboost().contexts[host]
    params = parse_settings(SecureBoostParams, {"mode": mode, "n_estimators": 9})
    shard = earlier.host_shard(replace(context, params=params), Binning(8, ()), 0, last, [])
    assert shard.facts["trees"] == trees
    assert np.array_equal(shard.arrays["tree"], [])
