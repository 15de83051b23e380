"""A csv file as text in UTF-8: its encoding, compression, delimiter and header line."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedboost.ground.errors import DataError

UTF8 = "utf-8"
PART_BYTES = 1 << 22  # of a file, searched at a time
BLOCK_BYTES_MIN, BLOCK_BYTES_MAX = 1 << 20, 1 << 30  # that Arrow parses together
# First bytes of compressed files, with Arrow's names of the compression.
COMPRESSION_SIGNS = {b"\x1f\x8b": "gzip", b"BZh91AY&SY": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
# First bytes of files of other formats, with the format and the remedy.
OTHER_FILES = {
    # Excel's tables are zip archives as well.
    b"PK\x03\x04": (
        "a zip archive or an Excel table",
        "unpack it, or save the sheet as csv in UTF-8",
    ),
    b"\xfd7zXZ": ("packed by xz", "unpack it, or pack it by gzip"),
    b"\x04\x22\x4d\x18": ("packed by lz4", "unpack it, or pack it by gzip"),
    b"\x1f\x9d": ("packed by compress", "unpack it, or pack it by gzip"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it, or pack it by gzip"),
    b"PAR1\x15": ("a parquet file", "declare format: parquet for the data set"),
    b"ARROW1\0": ("an Arrow file", "declare format: arrow for the data set"),
}
DELIMITERS = (",", ";", "\t", "|")
NEWLINE, RETURN, QUOTE = 10, 13, 34
SEP_CHARS_MAX = 16  # of a line sep=;


@dataclass(frozen=True)
class CsvFile:
    """A csv file, its delimiter and its encoding as declared; None: as the file shows."""

    path: Path
    delimiter: str
    encoding: str | None = None

    def opened(self) -> pa.NativeFile:
        """Open the file as bytes in UTF-8."""
        if self.codec == UTF8:
            return self._unpacked()
        return pa.transcoding_input_stream(self._unpacked(), self.codec, "utf8")

    @cached_property
    def codec(self) -> str:
        """Declared encoding; without one UTF-16 if the file has its mark, else UTF-8."""
        if self.encoding is not None:
            return codecs.lookup(self.encoding).name
        with self._unpacked() as file:
            is_wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        return "utf-16" if is_wide else UTF8

    @cached_property
    def sign(self) -> str:
        """Delimiter: the one that a first line ``sep=;`` of Excel names, else the declared one."""
        return self._named_by_excel or self.delimiter

    @property
    def skipped_lines(self) -> int:
        """Number of lines before the header."""
        return int(self._named_by_excel is not None)

    @cached_property
    def names(self) -> list[str]:
        """Column names; a DataError refuses another delimiter, encoding or unbalanced quotes."""
        for sign, (what, todo) in OTHER_FILES.items():
            if self._begins(sign):
                raise DataError(f"the file is {what}, not csv", todo=todo)
        if self._quotes_and_longest[0] % 2:
            raise DataError(
                "a quoted cell never ends: the file has an odd number of quotation marks",
                todo="close it, and write a quotation mark within a cell twice",
            )
        with self._text() as text:
            for _ in range(self.skipped_lines):
                text.readline()
            names = next((row for row in csv.reader(text, delimiter=self.sign) if row), [])
        if any("\0" in name for name in names):  # UTF-16 without its mark
            raise self.unreadable("the header has zero bytes")
        wrong = next((other for other in DELIMITERS if other in "".join(names)), None)
        if len(names) == 1 and wrong:
            raise DataError(
                f"the columns are separated by {wrong!r}, not by {self.sign!r}",
                todo=f"declare delimiter: {wrong!r} for the data set".replace("'", '"'),
            )
        return names

    @cached_property
    def block_bytes(self) -> int:
        """Size of Arrow's blocks, into which the longest row fits."""
        longest = self._quotes_and_longest[1]
        if longest >= BLOCK_BYTES_MAX:
            raise DataError(
                "a row of the file is longer than 1 GiB",
                todo="check its line ends and quotation marks, or write the table as parquet",
            )
        return max(BLOCK_BYTES_MIN, longest + 2)

    def unreadable(self, private: str) -> DataError:
        """Return the error for bytes that are not text of the encoding, or not csv."""
        if self._compression is not None and self._is_damaged():
            return DataError(
                f"the {self._compression} file is damaged, or its end is missing",
                todo="write or copy it again",
                private=private,
            )
        if self.codec == UTF8:
            todo = "declare its encoding, such as encoding: cp1252 or utf-16, or save it as UTF-8"
            return DataError("the file is not csv in UTF-8", todo=todo, private=private)
        return DataError(
            f"the file is not csv in {self.codec}",
            todo="correct 'encoding' of the data set, or save the file as UTF-8",
            private=private,
        )

    @cached_property
    def _quotes_and_longest(self) -> tuple[int, int]:
        """Number of quotation marks, and bytes of the longest row."""
        quotes = longest = begun = 0
        try:
            with self.opened() as file:
                for part in iter(lambda: file.read(PART_BYTES), b""):
                    data = np.frombuffer(part, np.uint8)
                    ends = np.flatnonzero((data == NEWLINE) | (data == RETURN))
                    marks = data == QUOTE
                    count = int(np.count_nonzero(marks))
                    if count or quotes % 2:  # line ends within quotation marks end no row
                        inside = np.bitwise_xor.accumulate(marks.view(np.uint8)) ^ quotes % 2
                        ends = ends[inside[ends] == 0]
                    quotes += count
                    if len(ends):
                        gaps = np.diff(ends, prepend=-1 - begun)
                        longest, begun = max(longest, int(gaps.max())), -1 - int(ends[-1])
                    begun += len(data)
        except (pa.ArrowException, UnicodeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self.unreadable(str(error)) from None
        return quotes, max(longest, begun)

    @cached_property
    def _named_by_excel(self) -> str | None:
        with self._text() as text:
            line = text.readline(SEP_CHARS_MAX).strip().strip('"')
        is_named = line[:-1].lower() == "sep="
        return line[-1] if is_named else None

    @contextmanager
    def _text(self) -> Iterator[io.TextIOWrapper]:
        try:
            with self.opened() as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
                yield text
        except (pa.ArrowException, UnicodeError, csv.Error) as error:
            raise self.unreadable(str(error)) from None

    def _unpacked(self) -> pa.NativeFile:
        """Open the file as its own bytes, without the compression that its first bytes show."""
        return pa.input_stream(str(self.path), compression=self._compression)

    @cached_property
    def _compression(self) -> str | None:
        return next((name for sign, name in COMPRESSION_SIGNS.items() if self._begins(sign)), None)

    def _is_damaged(self) -> bool:
        """Whether the file cannot be unpacked to its end."""
        try:
            with self._unpacked() as file:
                for _ in iter(lambda: file.read(PART_BYTES), b""):
                    pass
        except (pa.ArrowException, OSError):
            return True
        return False

    def _begins(self, sign: bytes) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(sign)) == sign
