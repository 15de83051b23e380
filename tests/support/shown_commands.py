"""Command lines shown in documents and settings: found, and checked without running them."""

import re
import shlex
from dataclasses import dataclass

import click

from fedboost.cli.groups import cli

FENCE = re.compile(r"^```(\w*)[ ]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'\btitle="([^"]+)"')
SHELLS = ("console", "bash", "sh")
SEPARATORS = re.compile(r"\s(?:&&|\|\||[|;&])(?=\s|$)|\s\d?>>?\s*\S+|\s#\s.*$")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    title: str | None
    text: str
    line: int  # of its first line in the document, from 1


@dataclass(frozen=True)
class Command:
    """A command as somebody types it, and the lines that the document shows below it."""

    text: str
    shown: tuple[str, ...]
    line: int


def blocks(text: str) -> list[Block]:
    """Every fenced block, in order."""
    found = []
    for match in FENCE.finditer(text):
        title = TITLE.search(match[2])
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(match[1], title[1] if title else None, match[3], line))
    return found


def typed(block: Block) -> list[Command]:
    """The commands of a shell block: what follows `$` in ```console, the whole elsewhere.

    A command goes on behind a line that ends with a backslash or inside quotes.
    """
    if block.language != "console":
        return [Command(block.text.rstrip("\n"), (), block.line)]
    found: list[tuple[list[str], list[str], int]] = []
    is_open = False
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if is_open:
            found[-1][0].append(line)
        elif line.startswith("$ "):
            found.append(([line[2:]], [], number))
        elif found and line.strip():
            found[-1][1].append(line.rstrip())
        is_open = bool(found) and not found[-1][1] and _goes_on("\n".join(found[-1][0]))
    return [Command("\n".join(said), tuple(shown), number) for said, shown, number in found]


def _goes_on(said: str) -> bool:
    """Whether a shell waits for another line."""
    if said.endswith("\\"):
        return True
    try:
        shlex.split(said, comments=True)
    except ValueError:
        return True
    return False


def lines(text: str) -> list[str]:
    """The commands of every shell block, each as one line."""
    shells = [block for block in blocks(text) if block.language in SHELLS]
    found = []
    for block in shells:
        whole = block.language == "console"
        for command in typed(block):
            joined = command.text.replace("\\\n", " ")
            found += [joined] if whole else joined.splitlines()
    return [line for line in found if line.strip() and not line.startswith("#")]


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of every call of `program` in the shell blocks."""
    found = []
    for line in lines(text):
        inner = re.findall(r"\$\(([^)]*)\)", line)
        outer = re.sub(r"\$\([^)]*\)", "INNER", line)
        outer = re.sub(r"^\((.*)\)(?= &$|$)", r"\1", outer)  # a shell of its own
        for piece in (part for whole in (outer, *inner) for part in SEPARATORS.split(whole)):
            if not piece or program not in piece:
                continue
            words = [w for w in shlex.split(piece) if not re.fullmatch(r"[A-Z_]+=.*|exec", w)]
            if words and words[0].rpartition("/")[2] == program:
                found.append(words[1:])
    return found


def check(args: list[str]) -> None:
    """Fails where the command line has no such command, option or argument; runs nothing."""
    command: click.Command = cli
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        assert args, f"{command.name} needs a command"
        found = command.get_command(context, args[0])
        assert found is not None, f"{command.name} has no command {args[0]!r}"
        command, args = found, args[1:]
    command.make_context(command.name, list(args), parent=context)
