"""What must hold of a host, whatever a schedule of the random adversary has done (`adversary`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedboost.flow import Spent
from fedboost.runtime.policy.account import largest_amount
from tests.support.host_limits import (
    COLUMNS,
    EPSILON,
    GUESTS,
    HOST,
    HYBRID,
    KNOWN,
    ROWS,
    TREES,
    Limits,
)
from tests.support.lies import Schedule
from tests.support.row_reader import RowReader

PLACED_EACH = 12.0  # rows' shares that one message can place in a column: of a few layers' nodes


@dataclass
class HostBorder(Schedule):
    """A schedule against a host, with what an observer has seen of it."""

    # What the host's store says in the end, of each guest
    rows_a_day: dict[str, int] = field(default_factory=dict)
    aligned: dict[str, int] = field(default_factory=dict)

    victim = HOST
    others = GUESTS
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reader = RowReader(self.observer, HOST)
        self.kinds: dict[str, str] = {}  # of jobs
        self.guests: dict[str, str] = {}
        self.stolen: set[str] = set()  # predictions for another than the model's guest

    def looks(self, node: Any) -> None:
        """The counters of a day."""
        with node.store.transaction() as sql:
            rows = "SELECT peer, sum(rows) FROM predictions GROUP BY peer"
            self.rows_a_day = dict(sql.execute(rows).fetchall())
            runs = "SELECT peer, max(runs) FROM alignments GROUP BY peer"
            self.aligned = dict(sql.execute(runs).fetchall())

    def assert_within(self) -> None:
        """What an observer has seen leave is what the account says, and within the policy."""
        self.assert_noted()
        self._assert_sums()
        self._assert_noise()
        self._assert_read()
        self._assert_placed()
        self._assert_predictions()
        self._assert_alignments()

    def _assert_sums(self) -> None:
        sums = self.observer.sums(HOST, len(COLUMNS), 2)
        rows = {entry.job: entry.rows for entry in self.entries}
        seen = {job: sum(told) / rows[job] for job, told in sums.items() if any(told)}
        said = {entry.job: sum(entry.told.values()) for entry in self.entries if entry.told}
        for job, trees in self.observer.answered(HOST).items():
            if self.kinds[job] == "cuts":  # of a node with one row no cut, and nothing to charge
                whole = trees / (HYBRID["max_bin"] - 1)
                least = whole / 2 if self.limits.group_rows_min == 1 else 0.0
                fits = least <= said.get(job, 0.0) <= whole + 1e-9
                assert fits, "random cuts are not what the account says"
                seen[job] = said.get(job, 0.0)
        if self.limits.group_rows_min == 1:
            self._assert_same(seen, said, "sums")
        else:  # some columns of a node have no groups of so many rows
            fewer = {job: min(seen.get(job, 0.0), told) for job, told in said.items()}
            self._assert_same(fewer, said, "sums")
        for told in self._most_told(Spent.SUMS):
            assert told <= self.limits.disclosure_max + 1e-9, "more sums than allowed"
        deepest = max(self.observer.deepest.values(), default=0)
        assert deepest <= TREES["max_depth"], "sums of more layers than the job has"

    def _assert_read(self) -> None:
        """No more rows of a column are read than are charged, and no sum of jobs is about few."""
        charged = {e.job: e.charged.get(Spent.PLACED, {}) for e in self.entries}
        for job, by_column in self.reader.placed().items():
            for column, read in by_column.items():
                said = charged.get(job, {}).get(COLUMNS[column], 0.0)
                assert read <= said + 1e-9, "more rows read than the account says"
        left_out = self.reader.fewest_left_out
        assert left_out >= self.limits.group_rows_min, "a tree that leaves out few rows"
        fewest = self.reader.fewest_told()
        assert fewest >= self.limits.group_rows_min - 1e-6, "jobs that together tell of few"

    def _assert_placed(self) -> None:
        """Whoever got sums or noisy values is charged rows placed, and no more than each message
        about all rows could place; nobody else is.
        """
        placed, sums = self._charged(Spent.PLACED), self.observer.sums(HOST, len(COLUMNS), 2)
        noise, answers = self.observer.noise(HOST, EPSILON), self.observer.messages(HOST)
        told = {job for job, (equations, _) in sums.items() if equations}
        told |= {job for job, epsilon in noise.items() if epsilon}
        for job in told:
            assert placed.get(job, 0.0) > 0.0, "what left places no rows"
        for job in placed.keys() - self.cut_off():
            most_placed = len(COLUMNS) * PLACED_EACH * answers.get(job, 0)
            assert placed[job] <= most_placed, "rows are placed by what has not left"
        for share in self._most_told(Spent.PLACED) if self.limits.placed_max < 1.0 else ():
            assert share <= self.limits.placed_max + 1e-9, "more rows placed than allowed"

    def _assert_noise(self) -> None:
        seen = self.observer.noise(HOST, EPSILON)
        said = {e.job: sum(e.charged.get(Spent.EPSILON, {}).values()) for e in self.entries}
        # Predictions are of another table's values.
        asked = {e.job for e in self.entries if Spent.ROWS in e.charged}
        trained = {job: own for job, own in said.items() if job not in asked}
        self._assert_same(seen, trained, "ε")
        assert max(sum(seen.values()), sum(said.values())) <= self.limits.epsilon_row_max, (
            "more ε than allowed"
        )
        assert not self.observer.told_twice(HOST, KNOWN), "noise was drawn anew"

    def _assert_predictions(self) -> None:
        seen = self.observer.predicting(HOST)
        scored = self._charged(Spent.ROWS)
        held = {job: rows for job, rows in scored.items() if self.kinds[job] != "predict"}
        self._assert_same(self.reader.held_out(), held, "held-out rows")
        asked_for = {job: rows for job, rows in scored.items() if job not in held}
        self._assert_same(seen, asked_for, "predicted rows")
        for job, asked in self.observer.people(HOST, KNOWN).items():
            assert asked <= seen[job], "rows that nobody counted"
            assert job not in self.stolen, "predicted for another than the model's guest"
        by_guest: dict[str, float] = {}
        for entry in self.entries:
            own = asked_for.get(entry.job, 0.0)  # rows that any training holds out are free
            by_guest[entry.guest] = by_guest.get(entry.guest, 0.0) + own
        counted = {guest: rows for guest, rows in by_guest.items() if rows}
        assert counted == self.rows_a_day, "rows of a day are not what the account says"
        most_rows = max(self.rows_a_day.values(), default=0)
        assert most_rows <= self.limits.rows_per_day, "more rows than allowed"

    def _assert_alignments(self) -> None:
        self._assert_same(self.observer.opened(HOST, ROWS), self._charged(Spent.IDS), "ids")
        brought = self._charged(Spent.PEER_IDS)
        self._assert_same(self.observer.brought(HOST), brought, "ids of peers")
        for guest in GUESTS:
            own = sum(n for job, n in brought.items() if self.guests[job] == guest)
            assert own <= self.limits.peer_ids_max, "more ids of a peer than allowed"
        fewest = self.observer.fewest_opened(HOST)
        assert fewest >= self.limits.intersection_min, "fewer ids opened than allowed"
        assert not self.observer.strange_points(HOST), "opened what nobody had sent"
        asked = self.observer.alignments_asked()
        for guest in GUESTS:
            counted = self.aligned.get(guest, 0)
            sets = self.observer.alignments(HOST).get(guest, 0)
            assert sets <= counted, "alignments that nobody counted"
            tried = sum(count for job, count in asked.items() if self.guests[job] == guest)
            assert counted <= tried, "alignments that nobody asked for"
        most_runs = max(self.aligned.values(), default=0)
        assert most_runs <= self.limits.alignments_per_day, "more alignments than allowed"

    def _most_told(self, kind: Spent) -> Iterator[float]:
        """What the account says of the most told column, of guests who may compare notes."""
        apart = self.limits.apart
        for guests in ([g for g in GUESTS if g not in apart], *([g] for g in apart)):
            told: dict[str, float] = {}
            for entry in self.entries:
                amounts = entry.charged.get(kind, {}) if entry.guest in guests else {}
                for column, amount in amounts.items():
                    told[column] = told.get(column, 0.0) + amount
            yield largest_amount(told)

    def _charged(self, kind: Spent) -> dict[str, float]:
        return {e.job: sum(e.charged[kind].values()) for e in self.entries if kind in e.charged}

    def _assert_same(self, seen: Mapping[str, float], said: Mapping[str, float], what: str) -> None:
        """Of each job the account says what left; no less where an attempt was cut off, since
        charges come first.
        """
        cut_off = self.cut_off()
        for job in seen.keys() | said.keys():
            left, charged = seen.get(job, 0.0), said.get(job, 0.0)
            assert left <= charged + 1e-9, f"{what} are more than the account says"
            assert job in cut_off or left >= charged - 1e-9, f"{what} are not what the account says"
