"""Opens a recording and yields its lines: whatever the encoding, compressed or not, torn or whole, in bounded memory."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detector.errors import SourceError
from detector.sources.format import Problems

CHUNK: Final = 256 * 1024
_LONGEST_LINE: Final = 64 * 1024 * 1024
"""A line beyond this (in characters) is skipped, so that a file without line ends cannot fill the memory."""
_GZIP: Final = b"\x1f\x8b"
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NULS: Final = re.compile("\0+")


@dataclass(frozen=True, slots=True)
class Block:
    """Successive lines, without their ends."""

    number: int
    """The number of the first line, from 1."""
    lines: list[str]
    complete: bool = True
    """False: the last line has no end, so its tail may be missing."""


class Text:
    """One file as text. *on_bytes* is told how many bytes of the file each chunk took.

    Raises SourceError where the file cannot be opened, is empty or a folder.
    """

    def __init__(self, path: Path, problems: Problems, on_bytes: Callable[[int], None] = lambda count: None) -> None:
        self.path = path
        self._problems = problems
        self._on_bytes = on_bytes
        self._chunks = self._decoded()
        self.head = next(self._chunks, "")
        """The first characters, for sniffing."""
        if not self.head.strip("\0 \t\r\n\ufeff"):
            raise SourceError(f"{path} is empty: nothing was recorded")

    def blocks(self) -> Iterator[Block]:
        """The lines, many at a time; once. NULs at the ends of a line are stripped, one inside becomes a replacement character."""
        number, parts, size = 1, [], 0
        for chunk in self._with_head():
            cut = chunk.rfind("\n")
            if cut < 0:
                size += len(chunk)
                if size <= _LONGEST_LINE:
                    parts.append(chunk)
                elif parts:
                    self._problems.add(self.path, number, "longer than any line of a recording: skipped up to its end")
                    parts = []
                continue
            body = "".join(parts) + chunk[:cut] if size <= _LONGEST_LINE else chunk[chunk.index("\n") : cut]
            parts, size = [chunk[cut + 1 :]], len(chunk) - cut - 1
            block = Block(number, body.split("\n"))
            number += len(block.lines)
            if "\0" in body:
                yield from _without_nuls(block)
            else:
                yield block
        if rest := "".join(parts):
            yield from _without_nuls(Block(number, [rest], complete=False))

    def _with_head(self) -> Iterator[str]:
        yield self.head
        yield from self._chunks

    def _decoded(self) -> Iterator[str]:
        """Text with `\\n` as the only line end."""
        decoder: codecs.IncrementalDecoder | None = None
        held = ""
        for data in self._unpacked():
            if decoder is None:
                decoder = codecs.getincrementaldecoder(_encoding(data))(errors="replace")
            text = held + decoder.decode(data)
            held = "\r" if text.endswith("\r") else ""  # its \n may come with the next chunk
            text = text[: len(text) - len(held)]
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            if text:
                yield text
        if decoder is not None and (tail := held.replace("\r", "\n") + decoder.decode(b"", final=True)):
            yield tail

    def _unpacked(self) -> Iterator[bytes]:
        chunks = self._raw()
        first = next(chunks, b"")
        if first.startswith(_GZIP):
            yield from self._gunzip(first, chunks)
        else:
            yield first
            yield from chunks

    def _gunzip(self, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        packed: bytes | None = first
        try:
            while packed is not None:
                while packed:
                    yield member.decompress(packed, CHUNK)
                    packed = member.unconsumed_tail
                    if member.eof and (packed := member.unused_data.lstrip(b"\0")):
                        member = zlib.decompressobj(wbits=31)
                packed = next(rest, None)
        except zlib.error:
            self._problems.add(self.path, None, "the compressed data is damaged: what follows is lost")
            return
        if not member.eof:
            self._problems.add(self.path, None, "the compressed data is cut off: its end is lost")

    def _raw(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as file:
                while data := file.read(CHUNK):
                    self._on_bytes(len(data))
                    yield data
        except IsADirectoryError:
            raise SourceError(f"{self.path} is a folder: name the recordings in it") from None
        except FileNotFoundError:
            raise SourceError(f"{self.path} does not exist") from None
        except PermissionError:
            raise SourceError(f"{self.path} may not be read by this user: change its permissions, or run as its owner") from None
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from None


def _encoding(data: bytes) -> str:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return name
    # Text that is mostly ASCII has a NUL in every other byte when it is UTF-16, whose mark PowerShell writes but `iconv` does not.
    sample = data[:4096]
    pairs = max(len(sample) // 2, 1)
    even, odd = sample[0::2].count(0) / pairs, sample[1::2].count(0) / pairs
    if odd > 0.6 and even < 0.1:
        return "utf-16-le"
    if even > 0.6 and odd < 0.1:
        return "utf-16-be"
    return "utf-8"


def _without_nuls(block: Block) -> Iterator[Block]:
    """NULs are what a crash, a truncated log or two writers leave behind: a hole before a line, or where its end was."""
    start = 0
    for n, line in enumerate(block.lines):
        if "\0" not in line:
            continue
        if start < n:
            yield Block(block.number + start, block.lines[start:n])
        start = n + 1
        if text := line.strip("\0"):
            whole = not line.endswith("\0") and (block.complete or start < len(block.lines))
            yield Block(block.number + n, [_NULS.sub("\ufffd", text)], whole)
    if start < len(block.lines):
        yield Block(block.number + start, block.lines[start:], block.complete)
