"""Shards on disk: whole or absent, and nobody changes one unnoticed."""

import io
import json

import numpy as np
import pytest

from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import arrays, shards
from tests.support.models import MODEL, random_model


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


def test_a_shard_comes_back_as_it_was_saved(models):
    for party, shard in random_model(1).items():
        shards.save_shard(models / party, shard)
        found = shards.load_shard(models / party)
        assert found.facts == shard.facts
        assert set(found.arrays) == set(shard.arrays)
        for name, array in shard.arrays.items():
            assert found.arrays[name].dtype == array.dtype
            assert np.array_equal(found.arrays[name], array)


def test_saving_again_replaces_the_shard_and_leaves_nothing_else(models):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    shards.save_shard(models / MODEL, random_model(2)["telco"])
    assert shards.load_shard(models / MODEL).facts["party"] == "telco"
    assert [path.name for path in models.iterdir()] == [MODEL]


def test_what_a_crash_left_behind_is_no_model_and_in_nobodys_way(models):
    for word in ("new", "old"):
        shards.save_shard(models / f".{MODEL}.{word}", random_model(1)["bank"])
    assert shards.model_ids(models) == []
    shards.save_shard(models / MODEL, random_model(2)["bank"])
    assert [path.name for path in models.iterdir()] == [MODEL]


def test_models_are_listed_by_name_and_other_folders_are_not(models):
    assert shards.model_ids(models) == []
    for name in ("b-2", "a-1"):
        shards.save_shard(models / name, random_model(1)["bank"])
    (models / "empty").mkdir()
    (models / "file").write_text("")
    assert shards.model_ids(models) == ["a-1", "b-2"]


def test_a_changed_array_is_refused(models):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    shards.save_shard(models / "other", random_model(2)["bank"])
    (models / "other" / shards.ARRAYS).replace(models / MODEL / shards.ARRAYS)
    with pytest.raises(DataError, match="arrays were changed") as caught:
        shards.load_shard(models / MODEL)
    assert caught.value.where["file"] == f"{MODEL}/arrays.npz"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "damaged"),
        ("[]", "format none"),
        (json.dumps({"format": 1}), "format 1, this version reads 4"),
    ],
)
def test_facts_that_are_none_are_refused(models, text, said):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    (models / MODEL / shards.FACTS).write_text(text)
    with pytest.raises(DataError, match=said):
        shards.load_shard(models / MODEL)


def test_a_shard_without_its_arrays_is_refused(models):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    (models / MODEL / shards.ARRAYS).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        shards.load_shard(models / MODEL)


def test_arrays_with_objects_inside_are_not_unpacked(models, monkeypatch):
    odd = io.BytesIO()
    np.savez(odd, tree=np.array([{}], dtype=object))
    monkeypatch.setattr(arrays, "pack_arrays", lambda _: odd.getvalue())
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    with pytest.raises(DataError, match="arrays are damaged"):
        shards.load_shard(models / MODEL)


def test_a_deleted_model_is_gone(models):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    shards.delete_model(models / MODEL)
    assert list(models.iterdir()) == []
    for gone in (shards.load_shard, shards.delete_model):
        with pytest.raises(ConfigError, match=f"no model {MODEL}"):
            gone(models / MODEL)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "A", ".a", "a" * 81, "-a"])
def test_what_is_no_id_leads_nowhere(models, name):
    with pytest.raises(ConfigError, match="not a model's id"):
        shards.folder_of(models, name)


def test_changed_facts_are_refused(models):
    shards.save_shard(models / MODEL, random_model(1)["bank"])
    path = models / MODEL / shards.FACTS
    facts = json.loads(path.read_text())
    facts["party"] = "telco"
    path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="file was changed"):
        shards.load_shard(models / MODEL)
