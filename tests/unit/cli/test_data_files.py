"""`--data PARTY=FILE.yaml` declares a data set for a local run."""

import pytest

from fedboost.cli.cluster import read_sources
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError


def test_a_table_is_declared_by_its_file_or_by_yaml(tmp_path):
    table, declaration = tmp_path / "a.csv", tmp_path / "b.yaml"
    table.write_text("id\n1\n")
    declaration.write_text("path: b.csv\nid_format: {zfill: 3}\n")
    found = read_sources((f"bank={table}", f"telco={declaration}"))
    assert found["bank"] == SourceSpec(path=str(table))
    assert (found["telco"].path, found["telco"].id_format.zfill) == ("b.csv", 3)


def test_a_wrong_declaration_names_its_key_and_file(tmp_path):
    declaration = tmp_path / "b.yaml"
    declaration.write_text("path: b.csv\nid_format: {zeros: 3}\n")
    with pytest.raises(ConfigError, match=r"unknown key 'id_format\.zeros'") as refused:
        read_sources((f"telco={declaration}",))
    assert refused.value.where["file"] == str(declaration)
