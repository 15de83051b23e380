"""What the families of faults share: each toy's ground, laid once, and what happens on it.

Golden files list it, so that cases have names before anything runs: `messages.txt` every kind of
call in each toy, `writes.txt` every kind of durable write of each daemon, `kinds.txt` every kind of
message in each conversation. Written with `--rewrite`; `test_family_messages`,
`test_family_kills_simulated` and `test_family_mutations` hold them to the truth.
"""

import atexit
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.toys import TOYS, Ground

HERE = Path(__file__).resolve().parent
MESSAGES, WRITES, KINDS = (HERE / f"{name}.txt" for name in ("messages", "writes", "kinds"))


@cache
def ground(toy: str) -> Ground:
    """The toy's ground; its folder goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix=f"fedboost-{toy}-")
    atexit.register(folder.cleanup)
    return Ground.laid(TOYS[toy], Path(folder.name))


def lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """The rows of a golden file: a toy or conversation, who, and what."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        name, who, what = line.split(" | ")
        yield name, who, what


def listed(path: Path, name: str, rows: Iterator[tuple[str, str, str]], *, rewrite: bool) -> None:
    """Holds the rows of one toy or conversation, each once, to a golden file, or writes them."""
    known, found = list(lines(path)), list(dict.fromkeys(rows))
    if rewrite:
        others = [row for row in known if row[0] != name]
        path.write_text("".join(f"{' | '.join(row)}\n" for row in [*others, *found]))
        return
    own = [row for row in known if row[0] == name]
    assert found == own, "rewrite with --rewrite, and explain the difference"
