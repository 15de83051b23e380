"""Every error that a user can meet says what to do."""

import ast
from pathlib import Path

from fedboost.ground import errors
from tests.support.each import each

PRODUCT = Path(errors.__file__).parent
MET = {kind.__name__ for kind in errors.BY_CODE.values()} - {
    "FedboostError",
    "PeerError",  # nothing can be done here about what another party sends
    "ProtocolError",
}
MET |= {"InvalidTableError", "InvalidParameterError"}
# What a caller within fedboost does wrong, or a damaged file that its hash has shown before.
OURS = ("core/", "crypto/", "model/export.py", "model/networks.py", "model/whole.py", "state.py",
        "runtime/estimate/", "runtime/process/threads.py", "runtime/process/workers.py",
        "runtime/ledger/rows.py")  # fmt: skip
# Decisions and reasons of other people, in their words.
QUOTED = {"self.denial", "job.reason", "self._states.deny", "_absent_party_error"}
ABOUT_CORE = ("core/weight_checks.py", "core/objectives/", "core/gbun.py", "core/params.py")


def raised(path: Path):
    """Calls of the kinds of errors that users meet, in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MET:
            yield node


MODULES = sorted(str(path.relative_to(PRODUCT)) for path in PRODUCT.rglob("*.py"))
MEETING = [
    module for module in MODULES if module.startswith(ABOUT_CORE) or not module.startswith(OURS)
]


def test_an_error_that_a_user_meets_says_what_to_do():
    each(MEETING, says_what_to_do)


def says_what_to_do(module):
    for call in raised(PRODUCT / module):
        if any(keyword.arg == "todo" for keyword in call.keywords):
            continue
        text = ast.unparse(call)
        assert any(quoted in text for quoted in QUOTED), f"line {call.lineno}: {text} has no todo"
