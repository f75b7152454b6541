"""A host that answers with what the real tools printed, and folders as the kernel's sysfs has them."""

from pathlib import Path
from typing import Any

from validation.node.host import Host

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    """What a tool printed."""
    return (RECORDED / name).read_text()


class Answers(Host):
    """A host whose commands print what was recorded."""

    def __init__(self, answers: dict[str, str], expectations: dict[str, Any] | None = None) -> None:
        super().__init__("gpu-0", expectations)
        self.answers = answers

    def run(self, *argv: str) -> str:
        return recorded(next(name for part, name in self.answers.items() if part in argv))


def sysfs(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
