"""Deletion of ended jobs and of models; complete even if the daemon dies meanwhile.

A job is deleted in three steps: in one transaction its row and journal are removed and its id is
recorded as forgotten; then its files are removed; then the record is marked complete. The next
opening of the store finishes an interrupted deletion. The record stays: otherwise a coordinator
that proposes the job again could make it release again, without a second charge. Ledger and
accounts are never touched.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedboost.ground.disk import on_disk, open_database
from fedboost.ground.errors import ConfigError, JobError, PolicyError
from fedboost.model import shards
from fedboost.runtime.store.rows_in_common import Disclosures, RowsInCommon
from fedboost.runtime.store.store import GOING, OVER, JobState, Store, StoredJob
from fedboost.runtime.store.transcripts import Transcripts

log = logging.getLogger(__name__)

DAY_S = 86_400.0
FORGOTTEN_SCHEMA = """CREATE TABLE IF NOT EXISTS forgotten (
    job TEXT PRIMARY KEY, at REAL NOT NULL, keeps_model INTEGER NOT NULL, whole INTEGER NOT NULL
) STRICT"""
# Folders with content that may outlive its job.
OF_MODELS = ("models", "disclosures", "alignments")


class Forgetting:
    """Deletions in one store; thread-safe. Its creation finishes an earlier process's deletions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.transaction() as sql:
            sql.execute(FORGOTTEN_SCHEMA)
            begun = sql.execute("SELECT job, keeps_model FROM forgotten WHERE NOT whole").fetchall()
        for job, keeps_model in begun:
            self._delete_files(job, keeps_model=bool(keeps_model))
        for kind in OF_MODELS:
            _remove_leftovers(store.folder / kind)

    def forget(self, id_: str, *, keeps_model: bool = False) -> StoredJob:
        """Delete an ended job, and return it; raise JobError if it has not ended.

        With `keeps_model` its model and disclosure stay, for later jobs.
        """
        with self._store.transaction() as sql:
            job = check_over(self._store.job(id_))
            text = job.manifest
            sql.execute("DELETE FROM jobs WHERE id = ?", (id_,))
            note = (id_, self._store.now(), keeps_model)
            sql.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?, 0)", note)
        self._delete_files(id_, keeps_model=keeps_model)
        log.info("%s, which was %s, is deleted", id_, job.state)
        return replace(job, read_manifest=lambda: text)

    def refuse_deleted(self, id_: str, party: str) -> None:
        """Raise PolicyError for a job that was deleted here."""
        with self._store.transaction() as sql:
            known = sql.execute("SELECT 1 FROM forgotten WHERE job = ?", (id_,)).fetchone()
        if known:
            raise PolicyError(
                f"{party}'s owner has deleted the job", todo="submit it anew", party=party, job=id_
            )

    def jobs_due(self, days: float | None) -> list[str]:
        """Return jobs that ended more than so many days ago, the oldest first."""
        if days is None:
            return []
        before = self._store.now() - days * DAY_S
        return [job.id for job in self._store.jobs(*OVER) if job.since < before]

    def models_due(self, days: float | None) -> list[str]:
        """Return models made more than so many days ago that no unfinished job names."""
        if days is None:
            return []
        before, used = self._store.now() - days * DAY_S, self.used()
        models = self._store.models
        with on_disk(models):
            aged = {name: (models / name / shards.FACTS).stat().st_mtime
                    for name in shards.model_ids(models)}  # fmt: skip
        return [name for name, made in aged.items() if made < before and name not in used]

    def delete_model(self, model: str) -> None:
        """Delete a model with its companions."""
        delete_model(self._store.folder, model)
        log.info("the model %s is deleted", model)

    def used(self) -> set[str]:
        """Return the ids named by unfinished jobs: their own, and those of other models."""
        return set().union(
            *(_ids_named_by(job.id, job.manifest) for job in self._store.jobs(*GOING))
        )

    def _delete_files(self, id_: str, *, keeps_model: bool) -> None:
        self._store.vault.destroy_secrets(id_)
        kinds = [] if keeps_model else list(OF_MODELS)
        self._store.discard(id_, *kinds, "predictions", "reports", "jobs")
        with self._store.transaction() as sql:
            sql.execute("UPDATE forgotten SET whole = 1 WHERE job = ?", (id_,))


def check_over(job: StoredJob) -> StoredJob:
    """Return the job; raise JobError unless it has ended."""
    if job.state in OVER:
        return job
    raise JobError(
        f"the job is {job.state}; only ended jobs can be deleted",
        todo=f"fedboost job cancel {job.id}",
        job=job.id,
    )


def delete_model(store: Path, model: str) -> None:
    """Delete a model from a store's folder: the disclosures of its training to the party, its rows
    in common, its record for audits, and last the shard, so an interrupted deletion can be
    repeated.
    """
    Disclosures(store).delete(model)
    RowsInCommon(store).delete(model)
    Transcripts(store).delete(model)
    shards.delete_model(shards.folder_of(store / "models", model))


def refuse_used(store: Path, model: str) -> None:
    """Raise ConfigError for a model that a job in this store needs; the store may be open
    elsewhere.
    """
    path = store / "store.sqlite"
    if not path.exists():
        return
    marks = ", ".join("?" for _ in GOING)
    joined = "jobs JOIN manifests ON manifests.job = jobs.id"
    text = f"SELECT id, state, text FROM {joined} WHERE state IN ({marks})"  # noqa: S608  our words
    with on_disk(path), closing(open_database(path, "ro")) as connection:
        going = connection.execute(text, GOING).fetchall()
    for id_, state, manifest in going:
        if model in _ids_named_by(id_, manifest):
            raise ConfigError(
                f"the job {id_}, which is {JobState(state).shown}, needs the model",
                todo="delete it when the job has ended",
                model=model,
            )


def _ids_named_by(id_: str, manifest: bytes) -> set[str]:
    """Return a job's id and every text in its settings, which may be ids of others."""
    try:
        spec = json.loads(manifest)["spec"]
    except (ValueError, KeyError):
        spec = None
    return {id_, *_texts_in(spec)}


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for path in inner:
            yield from _texts_in(path)


def _remove_leftovers(folder: Path) -> None:
    """Remove leftovers of a process that died while it replaced or deleted a model."""
    with on_disk(folder):
        for path in (*folder.glob(".*.old"), *folder.glob(".*.new")):
            shutil.rmtree(path)
