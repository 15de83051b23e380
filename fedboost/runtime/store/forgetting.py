"""What a store forgets: jobs that are over, and models; whole, even if the daemon dies meanwhile.

A job goes in three moves: its row and journal vanish and its id is noted as forgotten, in one
transaction; then its files; then the note says that they are gone. Whoever opens the store next
ends what was begun. The note stays: a coordinator that proposed the job again would have it tell
once more what the account has counted once. Ledger and accounts are never touched.
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

from fedboost.ground.disk import on_disk, opened
from fedboost.ground.errors import ConfigError, JobError, PolicyError
from fedboost.model import shards
from fedboost.runtime.store.rows_in_common import Disclosures, RowsInCommon
from fedboost.runtime.store.store import GOING, OVER, JobState, Store, StoredJob
from fedboost.runtime.store.transcripts import Transcripts

log = logging.getLogger(__name__)

DAY_S = 86_400.0
SCHEMA = """CREATE TABLE IF NOT EXISTS forgotten (
    job TEXT PRIMARY KEY, at REAL NOT NULL, keeps_model INTEGER NOT NULL, whole INTEGER NOT NULL
) STRICT"""
# Folders whose contents outlive their job, if wanted.
OF_MODELS = ("models", "disclosures", "alignments")


class Forgetting:
    """One store's; thread-safe. Making it ends what an earlier process has begun."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.transaction() as sql:
            sql.execute(SCHEMA)
            begun = sql.execute("SELECT job, keeps_model FROM forgotten WHERE NOT whole").fetchall()
        for job, keeps_model in begun:
            self._finish(job, keeps_model=bool(keeps_model))
        for kind in OF_MODELS:
            _sweep(store.folder / kind)

    def forget(self, id_: str, *, keeps_model: bool = False) -> StoredJob:
        """Removes a job that is over, and gives what it was; a JobError where it is not over.

        With `keeps_model` its model and what it disclosed stay, for later jobs.
        """
        with self._store.transaction() as sql:
            job = check_over(self._store.job(id_))
            text = job.manifest
            sql.execute("DELETE FROM jobs WHERE id = ?", (id_,))
            note = (id_, self._store.now(), keeps_model)
            sql.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?, 0)", note)
        self._finish(id_, keeps_model=keeps_model)
        log.info("%s, which was %s, is deleted", id_, job.state)
        return replace(job, read_manifest=lambda: text)

    def refuse(self, id_: str, party: str) -> None:
        """Refuses, by a PolicyError, a job that was forgotten here."""
        with self._store.transaction() as sql:
            known = sql.execute("SELECT 1 FROM forgotten WHERE job = ?", (id_,)).fetchone()
        if known:
            raise PolicyError(
                f"{party}'s owner has deleted the job", todo="submit it anew", party=party, job=id_
            )

    def jobs_due(self, days: float | None) -> list[str]:
        """Jobs that have been over for more than so many days, the oldest first."""
        if days is None:
            return []
        before = self._store.now() - days * DAY_S
        return [job.id for job in self._store.jobs(*OVER) if job.since < before]

    def models_due(self, days: float | None) -> list[str]:
        """Models made more than so many days ago that no going job names."""
        if days is None:
            return []
        before, used = self._store.now() - days * DAY_S, self.used()
        models = self._store.models
        with on_disk(models):
            aged = {name: (models / name / shards.FACTS).stat().st_mtime
                    for name in shards.names(models)}  # fmt: skip
        return [name for name, made in aged.items() if made < before and name not in used]

    def delete_model(self, model: str) -> None:
        """Removes a model, and what goes with it."""
        delete_model(self._store.folder, model)
        log.info("the model %s is deleted", model)

    def used(self) -> set[str]:
        """Return what jobs that are not over name: their own ids, and models of others."""
        return set().union(*(_named(job.id, job.manifest) for job in self._store.jobs(*GOING)))

    def _finish(self, id_: str, *, keeps_model: bool) -> None:
        self._store.vault.destroy(id_)
        kinds = [] if keeps_model else list(OF_MODELS)
        self._store.discard(id_, *kinds, "predictions", "reports", "jobs")
        with self._store.transaction() as sql:
            sql.execute("UPDATE forgotten SET whole = 1 WHERE job = ?", (id_,))


def check_over(job: StoredJob) -> StoredJob:
    """The job itself; a JobError unless it is over."""
    if job.state in OVER:
        return job
    raise JobError(
        f"the job is {job.state}; only jobs that are over can be deleted",
        todo=f"fedboost job cancel {job.id}",
        job=job.id,
    )


def delete_model(store: Path, model: str) -> None:
    """Removes a model from a store's folder: what its training disclosed to the party, its rows in
    common and what the party kept of it for an audit, then the shard; so a model that is there can
    be deleted again.
    """
    Disclosures(store).delete(model)
    RowsInCommon(store).delete(model)
    Transcripts(store).delete(model)
    shards.delete(shards.folder_of(store / "models", model))


def refuse_used(store: Path, model: str) -> None:
    """Refuses, by a ConfigError, a model that a job in this store needs, whoever has it open."""
    path = store / "store.sqlite"
    if not path.exists():
        return
    marks = ", ".join("?" for _ in GOING)
    joined = "jobs JOIN manifests ON manifests.job = jobs.id"
    text = f"SELECT id, state, text FROM {joined} WHERE state IN ({marks})"  # noqa: S608  our words
    with on_disk(path), closing(opened(path, "ro")) as connection:
        going = connection.execute(text, GOING).fetchall()
    for id_, state, manifest in going:
        if model in _named(id_, manifest):
            raise ConfigError(
                f"the job {id_}, which is {JobState(state).shown}, needs the model",
                todo="delete it when the job is over",
                model=model,
            )


def _named(id_: str, manifest: bytes) -> set[str]:
    """A job's id and every text in its settings, some of which are ids of others."""
    try:
        spec = json.loads(manifest)["spec"]
    except (ValueError, KeyError):
        spec = None
    return {id_, *_texts(spec)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for path in inner:
            yield from _texts(path)


def _sweep(folder: Path) -> None:
    """Removes what a process has left that died while it replaced or deleted a model."""
    with on_disk(folder):
        for path in (*folder.glob(".*.old"), *folder.glob(".*.new")):
            shutil.rmtree(path)
