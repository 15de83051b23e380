"""What a person reads in a terminal is what a program wrote, whatever brackets it has."""

import io
import re

import pytest
import yaml
from click.testing import CliRunner
from rich.table import Table
from rich.text import Text

from fedboost.cli.groups import cli
from fedboost.report.consoles import plain_console
from fedboost.runtime.daemons import doctor
from fedboost.runtime.daemons.doctor import LinkCheck
from tests.conftest import ROOT

HOSTILE = [
    "here -> telco ([fe80::1]:7100)",
    "here -> telco ([2001:db8:a:b::1]:7100)",
    "s3://bucket/[year]/[/red]:x: [bold]table",
    "\\[link=http://example.org]name[/link]",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_printed_as_it_is_alone_and_in_a_table(text):
    out = io.StringIO()
    console = plain_console(file=out, width=100)
    console.print(text)
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    console.print(table, Text(text, style="bold"))
    assert out.getvalue().count(text) == 6


def test_no_other_console_is_made():
    """Styles are `Text`'s; a console with markup would read those of users and peers."""
    made = re.compile(r"(?<![\w.])Console\(|rich\.markup|from_markup|markup=True")
    found = [path for path in (ROOT / "fedboost").rglob("*.py") if made.search(path.read_text())]
    assert found == [ROOT / "fedboost" / "report" / "consoles.py"]


def test_doctor_shows_addresses_of_ipv6_and_words_in_brackets(tmp_path, monkeypatch):
    config = tmp_path / "telco.yaml"
    raw = {
        "name": "telco",
        "listen": "[::1]:7100",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "[::1]:1"},
        "peers": {"bank": "[::1]:2"},
        "store": str(tmp_path / "store[b]:x:"),
    }
    config.write_text(yaml.safe_dump(raw))

    async def findings(*_):
        return [LinkCheck(text, warning=text) for text in HOSTILE]

    monkeypatch.setattr(doctor, "check_links", findings)
    shown = CliRunner().invoke(cli, ["doctor", "--config", str(config)], env={"COLUMNS": "300"})
    assert shown.exit_code == 0, shown.output
    assert f"store {tmp_path}/store[b]:x:" in shown.output
    for text in HOSTILE:
        assert shown.output.count(text) == 2
