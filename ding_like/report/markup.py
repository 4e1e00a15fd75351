"""Make the pieces of a page; every text is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple


class Html(str):
    """Be text that is markup already; any other text is escaped."""

    __slots__ = ()


def text_of(value: object) -> str:
    """Return a value as markup: escaped, unless it is markup already."""
    return str(value) if isinstance(value, Html) else escape(str(value))


def element(tag: str, *content: object, **attributes: str) -> Html:
    """Return an element; an attribute `class_` is class."""
    named = "".join(f' {name.rstrip("_")}="{escape(value, quote=True)}"' for name, value in attributes.items())
    return Html(f"<{tag}{named}>{''.join(map(text_of, content))}</{tag}>")


def joined(parts: Iterable[object]) -> Html:
    """Return pieces after each other."""
    return Html("\n".join(map(text_of, parts)))


class Fact(NamedTuple):
    """Hold something to be seen at a glance."""

    name: str
    value: str
    note: str = ""


def facts(given: Iterable[Fact]) -> Html:
    """Return facts as a grid."""
    boxes = [
        element("div", element("dt", each.name), element("dd", each.value, element("small", each.note)))
        for each in given
    ]
    return element("dl", joined(boxes), class_="facts")


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = ()) -> Html:
    """Return a table; the columns `numbers` are aligned on the right. It scrolls where there is no room."""

    def row(cells: Sequence[object], tag: str) -> Html:
        made = [
            element(tag, cell, class_="n") if index in numbers else element(tag, cell)
            for index, cell in enumerate(cells)
        ]
        return element("tr", joined(made))

    head = element("thead", row(header, "th"))
    body = element("tbody", joined(row(cells, "td") for cells in rows))
    return element("div", element("table", head, body), class_="scroll")


def section(title: str, *content: object) -> Html:
    """Return a part of the page."""
    return element("section", element("h2", title), joined(content))


def details(summary: str, *content: object) -> Html:
    """Return what is shown on demand."""
    return element("details", element("summary", summary), joined(content))


def picture(path: Path, kind: str, alt: str) -> Html:
    """Return an image whose bytes are in the page; `kind` is its media type."""
    data = base64.b64encode(path.read_bytes()).decode()
    return Html(f'<img src="data:{escape(kind)};base64,{data}" alt="{escape(alt, quote=True)}">')
