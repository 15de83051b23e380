"""Tags of jobs: kept with the store, gone with the job, and words that are none are refused."""

import sqlite3
from contextlib import closing

import pytest

from fedboost.ground.errors import ConfigError, StoreError
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.store.tags import TAGS_MAX, Tags


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path, "coordinator coord") as store:
        for id_ in ("j1", "j2"):
            store.add_job(id_, "credit", b"{}", JobState.WAITING)
        yield store


def test_tags_outlive_the_daemon_and_are_taken_away_one_by_one(tmp_path):
    with Store(tmp_path, "coordinator coord") as store:
        store.add_job("j1", "credit", b"{}", JobState.WAITING)
        store.add_job("j2", "credit", b"{}", JobState.WAITING)
        Tags(store).add(["j1", "j2"], ["deep", "baseline", "deep"])
    with Store(tmp_path, "coordinator coord") as store:
        assert Tags(store).by_job() == {"j1": ("baseline", "deep"), "j2": ("baseline", "deep")}
        Tags(store).remove_tags(["j1"], ["deep", "unknown"])
        assert Tags(store).by_job() == {"j1": ("baseline",), "j2": ("baseline", "deep")}


@pytest.mark.parametrize("word", ["", "Deep", "two words", "<b>", "a" * 33, "-x", "é"])
def test_a_word_that_is_no_tag_is_refused_and_changes_nothing(store, word):
    with pytest.raises(ConfigError, match="is no tag"):
        Tags(store).add(["j1"], ["fine", word])
    assert Tags(store).by_job() == {}


def test_a_job_has_so_many_tags_and_one_more_for_several_changes_none(store):
    tags = Tags(store)
    tags.add(["j2"], [f"t{n}" for n in range(TAGS_MAX)])
    with pytest.raises(ConfigError, match=f"{TAGS_MAX} tags at most"):
        tags.add(["j1", "j2"], ["more"])
    assert "j1" not in tags.by_job()


def test_a_tag_that_nobody_wrote_is_a_damaged_store(store):
    Tags(store).add(["j1"], ["deep"])
    with closing(sqlite3.connect(store.database)) as connection, connection:
        connection.execute("DROP TRIGGER tags_update")
        connection.execute("UPDATE tags SET tag = 'shallow'")
    with pytest.raises(StoreError, match="damaged"):
        Tags(store).by_job()
