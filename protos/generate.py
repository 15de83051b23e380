"""Writes fedboost/messages from the .proto files: stubs, and what each message reveals.

Run by `make proto`; `make check` fails where the result differs from what is committed.
"""

import re
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos" / "fedboost"
COMMENTED = re.compile(r"((?:^//[^\n]*\n)+)^message (\w+)", re.MULTILINE)


def main() -> int:
    """Generates everything below fedboost/messages; gives protoc's exit status."""
    files = sorted(PROTOS.rglob("*.proto"))
    names = [f"fedboost/messages/{path.relative_to(PROTOS).as_posix()}" for path in files]
    well_known = resources.files("grpc_tools") / "_proto"
    include = [f"-Ifedboost/messages={PROTOS}", f"-I{well_known}"]
    outputs = [f"--python_out={ROOT}", f"--pyi_out={ROOT}"]
    status = protoc.main(["protoc", *include, *outputs, *names])
    services = [
        name for name, path in zip(names, files, strict=True) if "\nservice " in path.read_text()
    ]
    status = status or protoc.main(["protoc", *include, f"--grpc_python_out={ROOT}", *services])
    write_reveals(files)
    return int(status)


def write_reveals(files: list[Path]) -> None:
    """Write what every protocol message reveals and how it is protected, from its comments."""
    rows = []
    for path in files:
        if path.parent.name != "protocol":
            continue
        text = path.read_text()
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        for comment, message in COMMENTED.findall(text):
            prose = " ".join(line.removeprefix("//").strip() for line in comment.splitlines())
            said = re.search(r"Reveals: (.*?) Protected: (.*)$", prose)
            if package and said:
                rows.append((f"{package[1]}.{message}", *said.groups()))
    lines = ['"""What each message reveals and how it is protected; generated from protos/."""', ""]
    lines += [
        "# name of the message: (reveals, protected)",
        "REVEALS: dict[str, tuple[str, str]] = {",
    ]
    for name, reveals, protected in rows:
        lines += [f'    "{name}": (', f'        "{reveals}",', f'        "{protected}",', "    ),"]
    lines += ["}", ""]
    (ROOT / "fedboost" / "messages" / "reveals.py").write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
