"""Command lines shown in documents and settings, checked without running them."""

import re
import shlex

import click

from fedboost.cli.main import cli

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("console", "bash", "sh")
SEPARATORS = re.compile(r"\s(?:&&|\|\||[|;&])(?=\s|$)|\s\d?>>?\s*\S+|\s#\s.*$")


def lines(text: str) -> list[str]:
    """The commands of every shell block: what follows `$` in ```console, every line elsewhere."""
    found = []
    for language, block in FENCE.findall(text):
        if language not in SHELLS:
            continue
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            if language == "console":
                found += [line[2:]] if line.startswith("$ ") else []
            else:
                found += [line] if line.strip() and not line.startswith("#") else []
    return found


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of every call of `program` in the shell blocks."""
    found = []
    for line in lines(text):
        inner = re.findall(r"\$\(([^)]*)\)", line)
        outer = re.sub(r"\$\([^)]*\)", "INNER", line)
        for piece in (part for whole in (outer, *inner) for part in SEPARATORS.split(whole)):
            if not piece or program not in piece:
                continue
            words = [w for w in shlex.split(piece) if not re.fullmatch(r"[A-Z_]+=.*", w)]
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
