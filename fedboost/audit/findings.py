"""Results of attacks, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Linking = Literal["none", "neighbours", "all"]
LINKINGS: tuple[Linking, ...] = get_args(Linking)

SUMS, CLUSTERS, MEMBERS = "sums of bins", "row groupings", "the model's loss"
LABELS_KNOWN = 20  # to the attacker of row groupings


@dataclass(frozen=True)
class Finding:
    """The result of one attack."""

    attack: str  # the source of the attack: one of SUMS, CLUSTERS, MEMBERS
    linking: str  # with SUMS, the attacker's knowledge: one of LINKINGS; otherwise empty
    measure: Literal["precision", "auc"]
    value: float  # the mean over all that was tried
    chance: float
    worst: float  # the largest
    tried: int  # targets or draws
    about: str = ""  # owner of the attacked rows, if there are several

    @property
    def ratio(self) -> float:
        """Return the attack's value divided by chance; 0.0 for an AUC, which has no such ratio."""
        return self.value / self.chance if self.chance else 0.0

    def sentence(self) -> str:
        """Return the meaning in a sentence for the owner of the rows."""
        if self.attack == CLUSTERS:
            return (
                f"{self.about or 'A host'} that knew {LABELS_KNOWN} labels would put a row "
                f"with the label before one without in {self.value:.0%} of all pairs, from row "
                f"groupings alone; guessing does in 50%."
            )
        if self.attack == MEMBERS:
            return (
                "Whoever has the model and a row with its label would tell a training row from "
                f"another in {self.value:.0%} of all pairs; guessing does in 50%."
            )
        return (
            f"{_KNOWING[self.linking]}, of 100 rows that it names for one of our bins "
            f"{100 * self.value:.0f} are right; of rows drawn at random {100 * self.chance:.0f}."
        )


_KNOWING = {
    "none": "A guest that solves for each sum by itself",
    "neighbours": "A guest that follows sums from parents to children within a tree",
    "all": "A guest that knew of every tree which sums belong to one bin, the most it could know",
}
