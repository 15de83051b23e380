"""Names: a public class has one of its own, so that a search for it finds one thing."""

import ast
from collections import defaultdict

from tests.conftest import ROOT

ROLES = {"Guest", "Host", "Aggregator", "Party"}  # each protocol's folder has its own


def defined():
    """Modules that define a public class, by its name; generated messages apart."""
    found = defaultdict(list)
    for path in (ROOT / "fedboost").rglob("*.py"):
        module = path.relative_to(ROOT)
        if "messages" in module.parts:
            continue
        for node in ast.parse(path.read_text()).body:
            is_role = "protocols" in module.parts and getattr(node, "name", "") in ROLES
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_role:
                found[node.name].append(str(module))
    return found


def test_no_public_class_name_is_defined_twice():
    assert not {name for name, modules in defined().items() if len(modules) > 1}
