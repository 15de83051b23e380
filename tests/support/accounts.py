"""What one job may tell of a data set, as a party's account notes it, and what it tells."""

from fedboost.flow import Charge, Spent
from fedboost.ground.disk import transaction
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy.account import Account, AccountEntry
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store

SUMS = AccountEntry(
    job="j1", at="", dataset="credit", source="file", guest="bank", protocol="secureboost",
    rows=1000, planned=0.08, epsilon=0.0,
)  # fmt: skip


def tell(account: Account, entry: AccountEntry, *charges: Charge, peer: str = "") -> None:
    """Charges a message of a job, as the ledger's transaction does."""
    with transaction(account._connection, account._path):
        account.note(account._connection, entry, is_new=False)
        table = Owned(entry.dataset, entry.source)
        accounts.add_charges(account._connection, table, entry.job, peer or entry.guest, charges)


def predict(store: Store, peer: str, rows: int) -> int:
    """Counts rows that a peer has had predicted today; gives all of today."""
    with store.transaction() as sql:
        return accounts.count_prediction(sql, peer, store.today(), rows)


def sums(amount: float, column: str = "income") -> Charge:
    """A charge of so many equations by rows."""
    return Charge(Spent.SUMS, amount, column)
