"""The text of a web page: what a person would read, without what browsers run or draw."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset(
    [
        "p",
        "div",
        "br",
        "li",
        "ul",
        "ol",
        "tr",
        "table",
        "section",
        "article",
        "header",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "blockquote",
    ]
)
_CHARSET = re.compile(r"charset=[\"']?([\w-]{1,40})", re.ASCII)
_SPACE = re.compile(r"\s+")
_LINES = re.compile(r" *\n[ \n]*")


def page_text(body: bytes, content_type: str) -> str | None:
    """The words of a page, a line for each block. None where it is no text."""
    kind = content_type.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind.endswith(("json", "xml")) or not kind) or b"\0" in body[:1024]:
        return None
    found = _CHARSET.search(content_type) or _CHARSET.search(body[:2048].decode("ascii", "replace"))
    try:
        text = body.decode(found[1] if found else "utf-8", "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    return _words(text) if kind in ("text/html", "application/xhtml+xml") else text.strip()


def _words(html: str) -> str:
    page = _PageReader()
    page.feed(html)
    page.close()
    return _LINES.sub("\n", "".join(page.parts)).strip()


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: list[str] = []  # open elements whose text nobody sees

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(_SPACE.sub(" ", data))
