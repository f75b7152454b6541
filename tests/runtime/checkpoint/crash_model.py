"""A file system as hostile as POSIX lets it be: what may be on disk after a crash, from a trace of system calls.

Until its file is synced, a write may be there, be missing, leave zeros, or be there in part; until its folder is
synced, a change of names may be there or not, in any combination with others. A rename alone is atomic.
"""

import itertools
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,link,linkat,"
    "unlink,unlinkat,rmdir,ftruncate,truncate,fallocate,symlink,sendfile,copy_file_range"
)
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
MARK = "/nonexistent/mark/"


@dataclass
class Call:
    """A call that changed, or synced, what is below the folder; or a mark. Paths are from the folder's parent."""

    name: str
    path: str
    other: str = ""
    data: bytes = b""
    at: int = 0


def record(argv: Sequence[str], root: Path, trace: Path) -> list[Call]:
    """Runs a Python program under strace and gives what it did below `root`."""
    environment = {"PYTHONPATH": f"{Path(__file__).parents[3]}:{Path(__file__).parent}", "PATH": "/usr/bin:/bin"}
    command = ["strace", "-f", "-y", "-qq", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    subprocess.run([*command, sys.executable, *argv], check=True, timeout=240, env=environment, capture_output=True)
    return parse(whole_lines(trace.read_text()), root)


def whole_lines(text: str) -> Iterator[str]:
    """The trace's lines, with calls that another thread's interrupted put together again, where they ended."""
    begun: dict[str, str] = {}
    for line in text.splitlines():
        pid = line.split(" ", 1)[0]
        if line.endswith(" <unfinished ...>"):
            begun[pid] = line.removesuffix(" <unfinished ...>")
        elif found := re.match(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$", line):
            yield begun.pop(found[1]) + found[2]
        else:
            yield line


def parse(lines: Iterator[str], root: Path) -> list[Call]:
    """The calls that succeeded below `root`. Raises AssertionError for one that the model does not know."""
    calls: list[Call] = []
    places: dict[str, int] = {}
    base = str(root.parent) + "/"

    def below(path: str) -> str | None:
        if path == str(root.parent):
            return ""
        return path.removeprefix(base) if path == str(root) or path.startswith(str(root) + "/") else None

    for line in lines:
        if not (found := LINE.match(line)):
            continue
        name, arguments, status = found[1], found[2], int(found[3])
        strings = [bytes.fromhex(each.replace("\\x", "")) for each in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)]
        if strings and strings[0].startswith(MARK.encode()):
            calls.append(Call("mark", strings[0].decode().removeprefix(MARK)))
            continue
        if status < 0:
            continue
        opened = re.match(r"\d+<((?:\\x[0-9a-f]{2})*)>", arguments)
        on = below(bytes.fromhex(opened[1].replace("\\x", "")).decode()) if opened else None
        paths = [below(each.decode(errors="replace")) for each in strings[:2]] if not opened else []
        if name == "openat" and paths and paths[0] is not None and "O_CREAT" in arguments:
            calls.append(Call("create", paths[0]))
            places[paths[0]] = 0
        elif name in ("write", "pwrite64") and on is not None:
            at = int(arguments.rsplit(",", 1)[1]) if name == "pwrite64" else places.get(on, 0)
            assert len(strings[0]) >= status, "strace cut the data off"
            calls.append(Call("write", on, data=strings[0][:status], at=at))
            places[on] = at + status
        elif name in ("fsync", "fdatasync") and on is not None:
            calls.append(Call("sync", on))
        elif name in ("rename", "link") and None not in paths:
            calls.append(Call(name, str(paths[0]), str(paths[1])))
        elif name in ("mkdir", "unlink", "rmdir") and paths[0] is not None:
            calls.append(Call(name, paths[0]))
        else:
            assert name == "openat" or (on is None and not any(paths)), f"the model does not know {line[:200]}"
    return calls


@dataclass(eq=False)
class File:
    durable: bytes = b""
    pending: list[Call] = field(default_factory=list)


@dataclass(eq=False)
class Folder:
    live: dict[str, "File | Folder"] = field(default_factory=dict)
    durable: dict[str, "File | Folder"] = field(default_factory=dict)


@dataclass(eq=False)
class Change:
    """A change of names that is not known to last: in each folder, what goes (none) and what comes."""

    edits: list[tuple[Folder, str, "File | Folder | None"]]
    synced: set[Folder] = field(default_factory=set)


class Disk:
    """What programs see, and what is known to last."""

    def __init__(self) -> None:
        self.root = Folder()
        self.changes: list[Change] = []

    def apply(self, call: Call) -> None:
        if call.name == "mark":
            return
        if call.name in ("create", "mkdir"):
            if call.name == "create" and self._there(call.path):
                return
            self._change([(*self._at(call.path), Folder() if call.name == "mkdir" else File())])
        elif call.name == "write":
            self._node(call.path).pending.append(call)
        elif call.name == "sync":
            self._sync(self._node(call.path))
        elif call.name in ("unlink", "rmdir"):
            self._change([(*self._at(call.path), None)])
        elif call.name == "link":
            self._change([(*self._at(call.other), self._node(call.path))])
        elif call.name == "rename":
            self._change([(*self._at(call.path), None), (*self._at(call.other), self._node(call.path))])

    def after_crash(self, dice: random.Random, most: int) -> Iterator[dict[str, bytes | None]]:
        """Trees that may be found: paths to bytes, none for a folder. All combinations where those are few."""
        count = len(self.changes)
        if 2**count <= most:
            kept = [set(each) for size in range(count + 1) for each in itertools.combinations(range(count), size)]
        else:
            kept = [set(), set(range(count))]
            kept += [set(range(upto)) for upto in range(1, count)] + [set(range(count)) - {one} for one in range(count)]
            kept += [{one for one in range(count) if dice.random() < 0.5} for _ in range(most)]
        for each in kept:
            for how in ("lost", "kept", "torn", "zeros", "mixed"):
                yield self._tree(each, how, dice)

    def _tree(self, kept: set[int], how: str, dice: random.Random) -> dict[str, bytes | None]:
        names: dict[Folder, dict[str, File | Folder]] = {}
        for number, change in enumerate(self.changes):
            for folder, name, node in change.edits if number in kept else ():
                _edit(names.setdefault(folder, dict(folder.durable)), name, node)
        tree: dict[str, bytes | None] = {}
        seen: dict[File, bytes] = {}

        def walk(folder: Folder, path: str, above: frozenset[int]) -> None:
            for name, node in names.get(folder, folder.durable).items():
                where = f"{path}/{name}" if path else name
                if isinstance(node, Folder):
                    if id(node) not in above:
                        tree[where] = None
                        walk(node, where, above | {id(node)})
                else:
                    if node not in seen:
                        seen[node] = content(node, how, dice)
                    tree[where] = seen[node]

        walk(self.root, "", frozenset())
        return tree

    def _sync(self, node: File | Folder) -> None:
        if isinstance(node, File):
            node.durable, node.pending = content(node, "kept", random.Random(0)), []  # noqa: S311
            return
        # A change of two folders lasts only when both have been synced.
        for change in list(self.changes):
            folders = {edit[0] for edit in change.edits}
            if node in folders:
                change.synced.add(node)
            if change.synced == folders:
                self.changes.remove(change)
                for folder, name, there in change.edits:
                    _edit(folder.durable, name, there)

    def _change(self, edits: list[tuple[Folder, str, File | Folder | None]]) -> None:
        for folder, name, node in edits:
            _edit(folder.live, name, node)
        self.changes.append(Change(edits))

    def _at(self, path: str) -> tuple[Folder, str]:
        *above, name = path.split("/")
        folder = self.root
        for each in above:
            folder = folder.live[each]  # type: ignore[assignment]
        return folder, name

    def _there(self, path: str) -> bool:
        folder, name = self._at(path)
        return name in folder.live

    def _node(self, path: str) -> "File | Folder":  # type: ignore[return]
        if not path:
            return self.root
        folder, name = self._at(path)
        return folder.live[name]


def _edit(entries: "dict[str, File | Folder]", name: str, node: "File | Folder | None") -> None:
    entries.pop(name, None)
    if node is not None:
        entries[name] = node


def content(file: File, how: str, dice: random.Random) -> bytes:
    """A file's bytes, with its writes that were not synced treated in one way."""
    data = bytearray(file.durable)
    if how == "lost":
        return bytes(data)
    for number, call in enumerate(file.pending):
        way = dice.choice(("lost", "kept", "torn", "zeros")) if how == "mixed" else how
        if way == "lost":
            continue
        keep = len(call.data)
        if way == "torn" and number == len(file.pending) - 1:
            keep //= 2
        if len(data) < call.at + keep:
            data.extend(bytes(call.at + keep - len(data)))
        if way != "zeros":
            data[call.at : call.at + keep] = call.data[:keep]
    return bytes(data)
