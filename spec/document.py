"""Reads YAML into plain data, and remembers the line of every field.

Strict where YAML is lax: a key given twice is an error; anchors, aliases, tags and a second document are refused, so
that a file is what it looks like and cannot grow when read. Plain words mean what YAML 1.2's core schema says: `no` is
a word, `010` is ten, and a date is text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

LARGEST = 4 * 1024 * 1024
"""Bytes of the largest file that is read."""
DEEPEST = 32
"""Levels of the deepest nesting that is read."""

Path_: TypeAlias = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,2})?")


@dataclass(frozen=True)
class Fault:
    """Something in the file that keeps it from being read, or from being read in one way only."""

    line: int
    field: str
    what: str
    advice: str


@dataclass
class Document:
    """What a file says, and where. Lines count from 1. Without data it could not be read at all."""

    data: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: Path_) -> int:
        """The line of a field; of the nearest one that encloses it where it is not written itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


_LIKE = "clusters/lab.yaml"


def read(path: Path, top: type[dict[str, Any]] | type[list[Any]] = dict, like: str = _LIKE) -> Document:
    """The document in a file. Never raises on what a file may hold, or on there being none: that is a fault.

    `top` is what the whole must be: a mapping, as cluster specs are, or a list. `like` is a file of the same kind, to
    which people are pointed.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        return _refused("there is no such file", f"give the path of one, as in {like}")
    except IsADirectoryError:
        return _refused("this is a folder", "give the path of one file in it")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _refused(f"the file cannot be read: {reason}", "check its path and permissions")
    if len(raw) > LARGEST:
        return _refused(
            f"the file is larger than {LARGEST // 1024**2} MiB",
            "nothing that people declare is: a spec has groups, not nodes",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _refused("the file is not UTF-8 text", "save it as UTF-8; a spec is text, not an archive", line)
    return parse(text, top, like)


def parse(text: str, top: type[dict[str, Any]] | type[list[Any]] = dict, like: str = _LIKE) -> Document:
    """The document in a text."""
    found = Document()
    try:
        _build(yaml.parse(text, Loader=_Loader), found)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        advice = "look at this line and the one before: indentation, a missing colon, quote or bracket"
        return _refused(f"not YAML: {what}", advice, mark.line + 1 if mark else 1)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return _refused("a character that YAML does not allow", "remove it, or write it escaped", line)
    except _RefusedError as refused:
        return Document(faults=[refused.fault])
    if found.data is None:
        return _refused("the file is empty", f"start from {like}")
    if not isinstance(found.data, top):
        what = "a spec is a mapping of keys to values" if top is dict else "this file is a list"
        return _refused(what, f"start from {like}" if top is dict else "begin each item with a hyphen")
    return found


class _RefusedError(Exception):
    """Reading cannot go on."""

    def __init__(self, line: int, what: str, advice: str) -> None:
        super().__init__(what)
        self.fault = Fault(line, "", what, advice)


def _refused(what: str, advice: str, line: int = 1) -> Document:
    return Document(faults=[Fault(line, "", what, advice)])


@dataclass
class _Open:
    """A mapping or a list whose end has not come yet."""

    value: dict[str, Any] | list[Any]
    path: Path_
    key: str | None = None
    """In a mapping, the key whose value comes next."""


def _build(events: Iterator[Any], found: Document) -> None:
    """Puts the document together without recursion: nesting costs memory, not stack."""
    stack: list[_Open] = []
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _RefusedError(line, "a second document", "write each into a file of its own")
        elif isinstance(event, yaml.AliasEvent):
            raise _RefusedError(line, f"an alias, *{event.anchor}", "write the value out: a spec has no aliases")
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.tag is not None and event.tag != "!":
                raise _RefusedError(line, f"a tag, {event.tag}", "write the plain value: a spec has no tags")
            if event.anchor is not None:
                raise _RefusedError(line, f"an anchor, &{event.anchor}", "a spec has no anchors and aliases")
            _place(event, line, stack, found)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            stack.pop()


def _place(event: Any, line: int, stack: list[_Open], found: Document) -> None:
    """Puts one value where it belongs: a key, a key's value, a list's item, or the whole."""
    parent = stack[-1] if stack else None
    if parent is not None and isinstance(parent.value, dict) and parent.key is None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _RefusedError(line, "a key that is a list or a mapping", "keys are single words")
        parent.key = event.value
        path = (*parent.path, parent.key)
        if path in found.lines:
            what = f"given twice, first at line {found.lines[path]}"
            found.faults.append(Fault(line, written(path), what, "keep one of the two"))
        found.lines.setdefault(path, line)
        return
    value: Any
    if isinstance(event, yaml.ScalarEvent):
        value = _scalar(event.value, plain=event.implicit[0])
    else:
        value = {} if isinstance(event, yaml.MappingStartEvent) else []
    path = ()
    if parent is None:
        found.data = value
    elif isinstance(parent.value, list):
        path = (*parent.path, len(parent.value))
        found.lines[path] = line
        parent.value.append(value)
    elif parent.key is not None:
        path = (*parent.path, parent.key)
        parent.value[parent.key] = value
        parent.key = None
    if not isinstance(event, yaml.ScalarEvent):
        if len(stack) >= DEEPEST:
            raise _RefusedError(line, f"nested deeper than {DEEPEST} levels", "no part of a spec is that deep")
        stack.append(_Open(value, path))


def _scalar(text: str, plain: bool) -> Any:
    if not plain:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text


def written(path: Path_) -> str:
    """A path as people write it: `nodes[0].nics.fabric`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def unwritten(text: str) -> Path_:
    """The path that `written` made a text of."""
    return tuple(int(index) if index else key for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", text))
