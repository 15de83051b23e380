"""Tags of a coordinator's jobs: users' words to find them by."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence

from fedboost.ground.errors import ConfigError
from fedboost.runtime.store.schema import checked_values
from fedboost.runtime.store.store import Store

TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
TAGS_MAX = 16  # of a job


class Tags:
    """Tags in one store; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def by_job(self) -> dict[str, tuple[str, ...]]:
        """Return every job's tags, in the order of the alphabet."""
        with self._store.transaction() as sql:
            rows = sql.execute("SELECT job, tag, hash FROM tags ORDER BY job, tag").fetchall()
        by_job: dict[str, list[str]] = defaultdict(list)
        with self._store.raise_if_damaged():
            for job, tag in map(checked_values, rows):
                by_job[job].append(tag)
        return {job: tuple(tags) for job, tags in by_job.items()}

    def add(self, jobs: Collection[str], tags: Sequence[str]) -> None:
        """Give each job all tags, durably; a ConfigError, and no change, for no tag or too many."""
        for tag in tags:
            if not TAG.fullmatch(tag):
                raise ConfigError(
                    f"{tag[:64]!r} is no tag",
                    todo="use at most 32 small letters, digits, dots, dashes and underscores",
                )
        count = "SELECT count(*) FROM tags WHERE job = ?"
        with self._store.transaction() as sql:
            for job in jobs:
                rows = [(job, tag) for tag in tags]
                sql.executemany("INSERT OR IGNORE INTO tags (job, tag) VALUES (?, ?)", rows)
                if sql.execute(count, (job,)).fetchone()[0] > TAGS_MAX:
                    raise ConfigError(
                        f"a job has {TAGS_MAX} tags at most", todo="remove some first", job=job
                    )

    def remove_tags(self, jobs: Collection[str], tags: Sequence[str]) -> None:
        """Take the tags from each of the jobs, durably."""
        pairs = [(job, tag) for job in jobs for tag in tags]
        with self._store.transaction() as sql:
            sql.executemany("DELETE FROM tags WHERE job = ? AND tag = ?", pairs)
