"""csv as people have it: compressed, with other delimiters and encodings, rows of any length."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data import csv_files
from fedboost.data.reading import read_batches, read_sheet
from fedboost.data.row_count import row_count_bound
from fedboost.data.sources import SourceSpec, source_at
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings

ROWS = [["id", "größe", "note"], ["a", "1,5", 'x "y"\nz'], ["b", "2", "p;q\tr|s"]]
PACK = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def written(path, data, **said):
    path.write_bytes(data)
    return parse_settings(SourceSpec, {"path": str(path), **said})


def text(delimiter, end="\n"):
    def quoted(cell):
        return '"' + cell.replace('"', '""') + '"' if set(cell) & set(delimiter + '"\n') else cell

    return "".join(delimiter.join(map(quoted, row)) + end for row in ROWS)


def read(source):
    whole = read_sheet(source).columns
    assert pa.concat_tables([sheet.columns for sheet in read_batches(source)]).equals(whole)
    assert row_count_bound(source) >= whole.num_rows
    return whole.to_pydict()


def refusal(kind, source):
    with pytest.raises(kind) as refused:
        read(source)
    assert refused.value.todo
    return refused.value


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("delimiter", csv_files.DELIMITERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_file_is_read_as_pandas_reads_it(tmp_path, encoding, delimiter, packed, end):
    path = tmp_path / f"t.csv{packed}"
    declared = {} if delimiter == "," else {"delimiter": delimiter}
    declared |= {"encoding": encoding} if encoding == "cp1252" else {}
    data = text(delimiter, end).encode(encoding)
    source = written(path, PACK[packed](data), **declared)
    plain = io.BytesIO(data)
    expected = pd.read_csv(plain, sep=delimiter, dtype=str, encoding=encoding).to_dict("list")
    assert read(source) == expected


@pytest.mark.parametrize("name", ["t.tsv", "t.TAB", "t.tsv.gz"])
def test_an_ending_for_tabs_is_read_with_tabs(tmp_path, name):
    data = text("\t").encode()
    found = read(written(tmp_path / name, PACK[".gz" if name.endswith("gz") else ""](data)))
    assert [*found] == ROWS[0]


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_first_line_of_excel_names_the_delimiter(tmp_path, line, encoding):
    source = written(tmp_path / "t.csv", f"{line}\r\n{text(';')}".encode(encoding))
    assert [*read(source)] == ROWS[0]


def test_a_column_called_sep_is_a_column(tmp_path):
    assert read(written(tmp_path / "t.csv", b"sep=a,b\n1,2\n")) == {"sep=a": ["1"], "b": ["2"]}


@pytest.mark.parametrize("part", [1 << 22, 64, 7])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_of_any_length_are_read(tmp_path, monkeypatch, part, end):
    monkeypatch.setattr(csv_files, "PART_BYTES", part)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES_MIN", 16)
    long = "word \n" * 100
    rows = [f"a{n},{n}" for n in range(40)] + [f'b,"{long}"', "c,1"]
    source = written(tmp_path / "t.csv", end.join(["id,x", *rows, ""]).encode())
    if part == 1 << 22:
        assert read(source)["x"][-2:] == [long, "1"]
    file = csv_files.CsvFile(tmp_path / "t.csv", ",")
    assert len(f'b,"{long}"') < file.block_bytes < len(long) + 20


def test_a_row_longer_than_arrows_blocks_is_read_and_the_command_ends(tmp_path):
    values = np.random.default_rng(0).random((3, 4000))
    names = ",".join(f"gene_{k}" for k in range(4000))
    lines = [",".join(f"{v:.300f}" for v in row) for row in values]
    source = written(tmp_path / "t.csv", "\n".join([names, *lines]).encode())
    assert len(lines[0]) > csv_files.BLOCK_BYTES_MIN
    found = read_sheet(source).columns
    assert float(found["gene_3999"][2].as_py()) == values[2, -1]
    (tmp_path / "bad.csv").write_bytes(b"\xff".join([names.encode(), lines[0].encode()]))
    command = [sys.executable, "-m", "fedboost.cli.main", "data", "check", "bad.csv"]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, timeout=60, text=True
    )
    assert ended.returncode == 2, ended.stderr
    assert "not csv in UTF-8" in ended.stdout


def test_another_delimiter_or_encoding_has_a_remedy_that_works(tmp_path):
    path = tmp_path / "t.csv"
    refused = refusal(DataError, written(path, text(";").encode()))
    assert refused.what == "the columns are separated by ';', not by ','"
    assert refused.todo == 'declare delimiter: ";" for the data set'
    read(SourceSpec(path=str(path), delimiter=";"))
    refused = refusal(DataError, written(path, text(",").encode("cp1252")))
    assert refused.what == "the file is not csv in UTF-8"
    assert "encoding: cp1252" in refused.todo
    assert [*read(SourceSpec(path=str(path), encoding="cp1252"))] == ROWS[0]
    refused = refusal(DataError, SourceSpec(path=str(path), encoding="ascii"))
    assert refused.what == "the file is not csv in ascii"


def test_settings_of_csv_are_refused_elsewhere_and_checked(tmp_path):
    for said, what in (
        ({"path": "t.parquet", "delimiter": ";"}, "'delimiter' belongs to csv tables"),
        ({"path": "t.parquet", "encoding": "cp1252"}, "'encoding' belongs to csv tables"),
        ({"path": "t.csv", "encoding": "klingon"}, "there is no encoding 'klingon'"),
    ):
        with pytest.raises(ConfigError) as refused:
            parse_settings(SourceSpec, said)
        assert what in str(refused.value)


@pytest.mark.parametrize(
    ("name", "todo"),
    [
        ("t.xlsx", "save the sheet as csv"),
        ("t.XLS", "save the sheet as csv"),
        ("t.zip", "unpack it; of csv, .csv.gz is read"),
        ("t.parquet.gz", "unpack it"),
        ("t.json", "write it as parquet or csv"),
        ("t.txt", "name it: format: csv | parquet"),
    ],
)
def test_an_ending_that_is_not_read_has_a_remedy(tmp_path, name, todo):
    assert refusal(ConfigError, written(tmp_path / name, b"x")).todo.startswith(todo)


def test_files_that_are_called_otherwise_than_they_are(tmp_path):
    packed = written(tmp_path / "t.csv", gzip.compress(b"id,x\n1,2\n"))
    assert read(packed) == {"id": ["1"], "x": ["2"]}
    excel = written(tmp_path / "t.xlsx", b"PK\x03\x04rest", format="csv")
    assert "zip archive or an Excel table" in refusal(DataError, excel).what
    broken = written(tmp_path / "t.csv.gz", gzip.compress(b"id,x\n1,2\n" * 9999)[:-20])
    refused = refusal(DataError, broken)
    assert refused.what == "the gzip file is damaged, or its end is missing"
    assert refused.todo == "write or copy it again"


@pytest.mark.parametrize("cut", ["\udc80", "größe"])
def test_packed_text_in_another_encoding_is_not_damaged(tmp_path, cut):
    text = f"id,x\n1,{cut}\n".encode("latin-1" if cut == "größe" else "utf-8", "surrogateescape")
    packed = written(tmp_path / "t.csv.gz", gzip.compress(text))
    refused = refusal(DataError, packed)
    assert refused.what == "the file is not csv in UTF-8"
    assert "encoding: cp1252" in refused.todo


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (lzma.compress(b"id,x\n1,2\n"), "the file is packed by xz, not csv"),
        (bytes(pa.compress(b"id,x\n", codec="lz4", asbytes=True)), "the file is packed by lz4"),
        (b"\x1f\x9d\x90rest", "the file is packed by compress, not csv"),
        (b"7z\xbc\xaf\x27\x1crest", "the file is a 7z archive, not csv"),
    ],
)
def test_a_packing_that_is_not_read_is_named(tmp_path, data, what):
    refused = refusal(DataError, written(tmp_path / "t.csv", data))
    assert refused.what.startswith(what)
    assert refused.todo == "unpack it, or pack it by gzip"


def test_a_table_of_another_format_is_named(tmp_path):
    table = pa.table({"id": [1], "x": [0.5]})
    pq.write_table(table, tmp_path / "p.csv")
    feather.write_feather(table, tmp_path / "f.csv")
    for name, format_ in (("p", "parquet"), ("f", "arrow")):
        path = tmp_path / f"{name}.csv"
        todo = refusal(DataError, SourceSpec(path=str(path))).todo
        assert todo == f"declare format: {format_} for the data set"
        assert read(SourceSpec(path=str(path), format=format_)) == {"id": [1], "x": [0.5]}
    named = written(tmp_path / "n.csv", b"PAR1,ARROW1\n1,2\n")
    assert read(named) == {"PAR1": ["1"], "ARROW1": ["2"]}


def test_a_feather_file_is_read(tmp_path):
    feather.write_feather(pa.table({"id": [1], "x": [0.5]}), tmp_path / "t.feather")
    assert read(SourceSpec(path=str(tmp_path / "t.feather"))) == {"id": [1], "x": [0.5]}


@pytest.mark.parametrize("name", ["pipe.csv", "pipe"])
def test_a_pipe_is_refused_and_nothing_waits(tmp_path, name):
    os.mkfifo(tmp_path / name)
    refused = []
    read = threading.Thread(
        target=lambda: refused.append(refusal(DataError, source_at(str(tmp_path / name)))),
        daemon=True,
    )
    read.start()
    read.join(20)
    assert refused[0].what.startswith("the path leads to a pipe or a device, not to a")
    assert refused[0].todo == "write it to a file"
