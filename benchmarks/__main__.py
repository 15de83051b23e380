"""The command of all benchmarks: `python -m benchmarks NAME [--quick]`, `list`, or `all`."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path


def questions() -> dict[str, str]:
    """Return the first line about each question, by its name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\nQUESTION = " in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)[0]
    return found


def main(given: Sequence[str]) -> int:
    """Answer one question, or all of them one after the other; returns the exit status."""
    known = questions()
    name, *rest = given or ["list"]
    if name in known:
        import_module(f"benchmarks.{name}").QUESTION.main(rest)
    elif name == "all":
        for one in known:
            command = [sys.executable, "-m", "benchmarks", one, *rest]
            if status := subprocess.run(command, check=False).returncode:
                return status
    else:
        sys.stdout.writelines(f"{one:22}{about}\n" for one, about in known.items())
        return 0 if name == "list" else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
