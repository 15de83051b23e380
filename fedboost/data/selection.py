"""The parts of a party's table that a job uses; `loading` reads them."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedboost.data.sources import LabelValues, MissingValue, SourceSpec
from fedboost.ground.settings import Settings


class Selection(Settings):
    """A party's entry in a job's `data:`: the data set and the role of its columns.

    Id and label columns never become features. Absent `columns` means all others but `ignore`.
    Columns in `categorical` are features too, with cells of any type.
    """

    dataset: str | None = None  # a name the party has declared; commands with --data fill it in
    id: list[str] = Field(default_factory=lambda: ["id"], min_length=1)  # together they name a row
    label: str | None = None  # the guest's, or everybody's in a horizontal job
    # Classes of the label in order; of two the positive one comes last; absent: 0, 1, …
    label_values: LabelValues | None = None
    weight: str | None = None  # the guest's weights of rows; absent: all equal
    columns: list[str] | None = None  # features, in this order
    ignore: list[str] = Field(default_factory=list)  # columns that are not features
    categorical: list[str] = Field(default_factory=list)  # features whose values are categories
    missing: MissingValue = None  # the number that means missing in features, beside empty cells

    @model_validator(mode="after")
    def _values_of_a_label(self) -> Self:
        if self.label_values is not None and self.label is None:
            raise ValueError("label_values names classes, and no label has them: add 'label'")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out absent `label_values` and `missing`: jobs signed earlier do not have them."""
        late = ("label_values", "missing")
        return {k: value for k, value in write(self).items() if k not in late or value is not None}

    @model_validator(mode="after")
    def _one_use_each(self) -> Self:
        uses = {
            "id": self.id,
            "label": [] if self.label is None else [self.label],
            "weight": [] if self.weight is None else [self.weight],
            "columns": self.columns or [],
            "ignore": self.ignore,
            "categorical": self.categorical,
        }
        for key, names in uses.items():
            if len(set(names)) < len(names):
                raise ValueError(f"{key!r} names a column twice")
        for key, other in combinations(uses, 2):
            both = sorted(set(uses[key]) & set(uses[other]))
            if both and (key, other) != ("columns", "categorical"):
                raise ValueError(f"column {both[0]!r} is named in {key!r} and in {other!r}")
        if self.columns is not None:
            other_names = sorted(set(self.categorical) - set(self.columns))
            if other_names:
                raise ValueError(
                    f"column {other_names[0]!r} is named in 'categorical' and not in 'columns'"
                )
        return self


def source_for_selection(source: SourceSpec, selection: Selection) -> SourceSpec:
    """Return the data set as an owner would declare it for this selection.

    The job is the owner's own, so its values need not be coarsened.
    """
    return source.model_copy(
        update={
            "id": list(selection.id),
            "labels": [] if selection.label is None else [selection.label],
            "weights": [] if selection.weight is None else [selection.weight],
            "bins_max": None,
        }
    )
