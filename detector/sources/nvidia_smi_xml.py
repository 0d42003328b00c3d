"""What `nvidia-smi -q -x` prints, once or in a loop: one XML document a look, of any schema version.

Documents are read with expat, which fetches nothing: neither the DTD that they name nor any other entity. A document that declares
entities is refused, whatever they are, so none is ever expanded; nvidia-smi declares none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from detector.frame import Frame
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.pages import evenly, numbered
from detector.sources.sentences import is_sentence
from detector.sources.smi_page import Gpu, Page, SmiPages
from detector.sources.text import Text

_ROOT: Final = "nvidia_smi_log"
_BEGIN: Final = re.compile(rf"<\?xml\b|<!DOCTYPE\s+{_ROOT}\b|<{_ROOT}\b")
_END: Final = f"</{_ROOT}>"
_ILL_FORMED: Final = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)|[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""What nvidia-smi copies from the names of processes without a care."""
_LARGEST: Final = 32 * 1024 * 1024
"""No page has so many characters."""
_DEEPEST: Final = 32


def sniff(head: str) -> bool:
    return f"<{_ROOT}" in head


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame a document."""
    return evenly(_frames(text, SmiPages(text.path, options, problems)))


FORMAT: Final = Format("nvidia-smi-xml", sniff, read)


def _frames(text: Text, pages: SmiPages) -> Iterator[Frame]:
    for number, document in _documents(text, pages):
        if isinstance(document, str):
            if is_sentence(document):
                yield from pages.sentence(document)
            else:
                pages.note("lines between the documents are left out")
            continue
        try:
            tree, whole = _parse(document)
        except _Refused as refused:
            pages.problem(number, str(refused))
            continue
        yield from pages.frames(_page(number, tree, cut=not whole))
    yield from pages.end()


# -- documents --------------------------------------------------------------------------------------------------------------
def _documents(text: Text, pages: SmiPages) -> Iterator[tuple[int, list[str] | str]]:
    """The pieces of each document, and the lines in between, with their line numbers."""
    pieces: list[str] = []
    start, size = 0, 0
    inside = False  # its root: what goes before it may come in several lines
    for number, line, _ in numbered(text):
        rest = line
        while rest:
            begin = _BEGIN.search(rest)
            if begin is not None and pieces and (inside or begin[0] == "<?xml"):  # the next one begins before this one has ended
                yield start, [*pieces, rest[: begin.start()]]
                pieces, inside, rest = [], False, rest[begin.start() :]
                continue
            if not pieces:
                if begin is None:
                    if not rest.isspace():
                        yield number, rest
                    break
                start, size, rest = number, 0, rest[begin.start() :]
            body, end, after = rest.partition(_END)
            inside = inside or f"<{_ROOT}" in body
            pieces.append(body + (end or "\n"))
            size += len(body)
            if end:
                yield start, pieces
                pieces, inside = [], False
            elif size > _LARGEST:
                pages.problem(start, "longer than any page of nvidia-smi: left out")
                pieces, inside = [], False
            rest = after
    if pieces:
        yield start, pieces


class _Refused(Exception):
    """A document that is not read at all, and why."""


@dataclass(slots=True)
class _Node:
    """An element: its text, and the elements in it."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    nodes: list[_Node] = field(default_factory=list)

    def find(self, name: str) -> _Node | None:
        return next((node for node in self.nodes if node.name == name), None)

    def word(self, name: str) -> str:
        node = self.find(name)
        return "" if node is None else node.text.strip()


def _parse(pieces: list[str]) -> tuple[_Node, bool]:
    """The document as a tree, and whether it is whole: of one that is torn, what stands before the tear. Raises _Refused."""
    top = _Node("", {})
    path = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(path) > _DEEPEST:
            raise _Refused("nested deeper than any page of nvidia-smi: left out")
        node = _Node(name, attributes)
        path[-1].nodes.append(node)
        path.append(node)

    def end(name: str) -> None:
        path.pop()

    def data(text: str) -> None:
        path[-1].text += text

    def entity(*declaration: object) -> None:
        raise _Refused("a document that declares entities is not one of nvidia-smi: left out")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, data
    parser.EntityDeclHandler = entity
    try:
        for piece in pieces:
            parser.Parse(_ILL_FORMED.sub("?", piece), False)
        parser.Parse("", True)
    except expat.ExpatError:
        # What an element that is not closed says may have lost its tail.
        for node in path:
            node.text = ""
        return top, False
    return top, True


# -- what it says -----------------------------------------------------------------------------------------------------------
def _page(number: int, tree: _Node, *, cut: bool) -> Page:
    root = tree.find(_ROOT) or _Node(_ROOT, {})
    attached = root.word("attached_gpus")
    return Page(
        line=number,
        stamp=root.word("timestamp"),
        driver=root.word("driver_version") or None,
        attached=int(attached[:6]) if attached.isdecimal() else None,
        gpus=[_gpu(number, node) for node in root.nodes if node.name == "gpu"],
        cut=cut,
    )


def _gpu(number: int, node: _Node) -> Gpu:
    gpu = Gpu(number, node.attributes.get("id", ""))
    for section in node.nodes:
        if section.name == "mig_devices":
            gpu.instances = [dict(_flat(one)) for one in section.nodes if one.name == "mig_device"]
        elif section.name == "processes":
            if section.nodes or section.text.strip() in ("", "None"):
                gpu.processes = [dict(_flat(one)) for one in section.nodes if one.name == "process_info"]
        elif section.name != "supported_clocks":
            gpu.said.update(_flat(section, section.name))
    return gpu


def _flat(node: _Node, place: str = "") -> Iterator[tuple[str, str]]:
    """Place and text of what stands in the element."""
    if not node.nodes:
        yield place, node.text.strip()
    for child in node.nodes:
        yield from _flat(child, f"{place}/{child.name}" if place else child.name)
