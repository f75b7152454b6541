"""What tests of pages share: texts that want out of a page, and a reader that counts what is in one."""

from collections import Counter
from html.parser import HTMLParser

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; </style><script>x</script>",
    "{{ 7 * 7 }}{% raw %}",
    "\x00\x08\x1b[31mred\x7f",
    "abc\u202egpj.exe",
    "zero\u200bwidth\u2066",
    "]]><!--",
    "\ud7ff\ue000\ufffe",
    "line\nline\r\n\u2028",
    "x" * 5000,
)
VOID = {"meta", "img", "br", "input", "hr", "link"}


class Reader(HTMLParser):
    """Collects what the tests ask of a page, and fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, told or "") for name, told in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, told or "") for name, told in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [told for _, attribute, told in self.attributes if attribute == name]
