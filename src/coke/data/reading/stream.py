"""Bytes as they lie in a file ↦ UTF-8 lines that Arrow reads: unpacked, decoded, without blanks.

A megabyte or so is in memory at a time, however large the file is, unpacked or not.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from zipfile import ZipFile, ZipInfo

import pyarrow as pa

from coke.errors import DataError

HEAD = 1 << 20  # bytes that are looked at before any are read
LONGEST = 1 << 24  # bytes until a quote that nobody closes is taken for a character


def _member(path: Path) -> Any:
    """The only file in an archive."""
    with ZipFile(path) as archive:  # what is opened in it stays open
        files = [one for one in archive.infolist() if not _beside(one)]
        names = [one.filename for one in files]
        if "[Content_Types].xml" in names:
            raise DataError(f"{path.name} is an Excel workbook: its name must end in .xlsx")
        if len(files) != 1:
            raise DataError(
                f"{path.name} holds {len(files)} files{': ' * bool(names)}{', '.join(names[:8])}; "
                "expected one table: unpack it; a folder of files is a site a file"
            )
        if files[0].flag_bits & 1:
            raise DataError(f"{path.name} is encrypted: unpack it before")
        try:
            return archive.open(files[0])
        except NotImplementedError as error:
            raise DataError(f"{path.name}: {error}; unpack it before") from error


def _beside(one: ZipInfo) -> bool:
    """Folders, and what systems put beside files."""
    return one.is_dir() or one.filename.startswith("__MACOSX/")


MAGIC: dict[str, tuple[bytes, Callable[[Path], Any]]] = {  # first bytes, and what opens it
    "gzip": (b"\x1f\x8b", gzip.GzipFile),
    "bzip2": (b"BZh", bz2.BZ2File),
    "xz": (b"\xfd7zXZ\x00", lzma.LZMAFile),
    "zip": (b"PK\x03\x04", _member),
    "zstd": (b"\x28\xb5\x2f\xfd", lambda path: pa.input_stream(str(path), compression="zstd")),
}


def packing(path: Path) -> str:
    """By what a file is compressed, by its first bytes; "" for nothing."""
    with path.open("rb") as file:
        begin = file.read(8)
    return next((name for name, (magic, _) in MAGIC.items() if begin.startswith(magic)), "")


def unpacked(path: Path) -> BinaryIO:
    """The file's bytes, uncompressed."""
    name = packing(path)
    return cast(BinaryIO, MAGIC[name][1](path) if name else path.open("rb"))


class Lines(NamedTuple):
    """What makes plain lines of a text file."""

    encoding: str = "utf-8"
    separator: str = ","  # " " for runs of blanks and tabs
    skip: int = 0  # lines before the first row
    header: bytes = b""  # the line of names, which may come again
    dots: bool = False  # whether every row ends in a full stop
    returns: bool = False  # whether lines end in \r alone

    @property
    def delimiter(self) -> str:
        """What separates values in the plain lines."""
        return "\t" if self.separator == " " else self.separator


class Plain(io.RawIOBase):
    """The plain lines of some bytes, as a file that can be read once."""

    def __init__(self, raw: BinaryIO, lines: Lines):
        self._raw, self._lines, self.repeated = raw, lines, 0  # times that the header came again
        self._blocks, self._left = self._made(), memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, room: object) -> int:
        """As many bytes as there is room for, or are left: Arrow finds types in what it gets."""
        into, done = memoryview(room).cast("B"), 0  # type: ignore[arg-type]
        while done < len(into):
            if not self._left:
                block = next(self._blocks, None)
                if block is None:
                    break
                self._left = memoryview(block)
            n = min(len(into) - done, len(self._left))
            into[done : done + n], self._left = self._left[:n], self._left[n:]
            done += n
        return done

    def close(self) -> None:
        """And the file beneath."""
        self._raw.close()
        super().close()

    def _made(self) -> Iterator[bytes]:
        tidy = tidier(self._lines)
        for block in _rows(_decoded(self._raw, self._lines), self._lines.skip):
            yield tidy(self._without_headers(block))

    def _without_headers(self, block: bytes) -> bytes:
        header = self._lines.header
        if not header or header not in block:
            return block
        lines = block.splitlines(keepends=True)
        kept = [line for line in lines if line.rstrip(b"\r\n") != header]
        self.repeated += len(lines) - len(kept)
        return b"".join(kept)


def _decoded(raw: BinaryIO, lines: Lines) -> Iterator[bytes]:
    """Blocks in UTF-8, without a mark at the beginning."""
    decoder = None
    if lines.encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(lines.encoding)()
    first = True
    while block := raw.read(HEAD):
        some = block if decoder is None else decoder.decode(block).encode("utf-8", "replace")
        some = some.removeprefix(codecs.BOM_UTF8) if first else some
        first = first and not some
        yield some.replace(b"\r", b"\n") if lines.returns else some
    if decoder is not None:
        yield decoder.decode(b"", True).encode("utf-8", "replace")


def _rows(blocks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Blocks that end where rows do, without the first lines."""
    kept = b""
    for block in blocks:
        kept += block
        while skip and b"\n" in kept:
            kept, skip = kept.partition(b"\n")[2], skip - 1
        end = 0 if skip else _end(kept)
        if end:
            yield kept[:end]
            kept = kept[end:]
    if not skip and kept:
        yield kept


def _end(block: bytes) -> int:
    """Where the last whole row ends, outside quotes; 0 where there is none."""
    end = block.rfind(b"\n") + 1
    if len(block) > LONGEST:
        return end or len(block)
    quote = end
    if block.count(b'"', 0, end) % 2 == 0:
        return end
    while quote > 0:  # back from quote to quote: every second stretch is outside
        quote = block.rfind(b'"', 0, quote)
        before = block.rfind(b'"', 0, quote)
        end = block.rfind(b"\n", before + 1, quote) + 1
        if end:
            return end
        quote = before
    return 0


def tidier(lines: Lines) -> Callable[[bytes], bytes]:
    """What leaves blanks round values out, but for those in quotes, and full stops of rows."""
    mark, kind = re.escape(lines.delimiter.encode()), b" " if lines.separator == "\t" else b" \t"
    run = b"(?<![%b])[%b]++" % (kind, kind)
    quoted = b'((?<![^\n\r %b])"(?:[^"]++|"")*+")' % mark
    edges = b"^[%b]++|%b(?=\r?$)" % (kind, run)
    if lines.separator == " ":
        steps = [(quoted + b"|" + edges, b"\\1"), (quoted + b"|" + run, _one_tab)]
    else:
        beside = b"%b(?=%b)|(?<=%b)[%b]++" % (run, mark, mark, kind)
        steps = [(b"|".join((quoted, beside, edges)), b"\\1")]
    work: list[tuple[re.Pattern[bytes], Any]]
    work = [(re.compile(pattern, re.M), instead) for pattern, instead in steps]
    stop = re.compile(rb"\.(?=\r?$)", re.M)

    def tidy(block: bytes) -> bytes:
        if b'"' not in block:  # then most of it goes without patterns, which take a match a value
            block = _quickly(block, lines)
        if _blank(block, lines):
            for pattern, instead in work:
                block = pattern.sub(instead, block)
        return stop.sub(b"", block) if lines.dots else block

    return tidy


def _quickly(block: bytes, lines: Lines) -> bytes:
    """The same of a block without quotes, but for long runs of blanks and other rare ones."""
    if lines.separator == " ":
        return b"\n".join(b"\t".join(line.split()) for line in block.split(b"\n"))
    mark = lines.delimiter.encode()
    if b" " not in block:
        return block
    for blank, none in ((mark + b" ", mark), (b" " + mark, mark), (b" \n", b"\n"), (b"\n ", b"\n")):
        for _ in range(3):
            block = block.replace(blank, none)
    return block


def _blank(block: bytes, lines: Lines) -> bool:
    """Whether there are blanks beside separators, or at the ends of lines."""
    mark = lines.delimiter.encode()
    for blank in (b" ",) if lines.separator == "\t" else (b" ", b"\t"):
        beside = (mark + blank, blank + mark, b"\n" + blank, blank + b"\n", blank + b"\r")
        edge = block[:1] == blank or block[-1:] == blank
        if blank in block and (edge or any(pair in block for pair in beside)):
            return True
    return lines.separator == " " and b" " in block


def _one_tab(found: re.Match[bytes]) -> bytes:
    return found[1] or b"\t"
