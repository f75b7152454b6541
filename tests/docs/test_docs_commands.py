"""What README and docs tell people to type exists, and does what they say where no lab is needed for it."""

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.exceptions import TyperException

from muster.cli import app, main
from policies.exits import Exit
from policies.keys import PUBLIC, create

ROOT = Path(__file__).parents[2]
WRITTEN = sorted(
    path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.parent.name != "reference"
)
"""Pages that people wrote. Those in docs/reference are made from the program itself."""

OFFLINE = {"plan", "plan-network", "controls", "cost", "schema", "diagnose", "debug", "history", "rules"}
"""Commands that need no cluster: what pages show of them is run, and what they print compared."""

TOOLS = {"cd", "curl", "env", "eval", "kubectl", "make", "muster", "pulumi", "python", "source", "ssh", "sudo"}
"""What the pages call. Another name may be a slip of the pen; if not, it is added here."""

GROUP = typer.main.get_group(app)


@dataclass(frozen=True)
class Shown:
    """A command in a `console` block, and what the page shows of its output."""

    page: Path
    line: int
    command: str
    output: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.command}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command, comments=True)


def shown() -> Iterator[Shown]:
    for page in WRITTEN:
        lines = page.read_text().splitlines()
        inside = False
        for number, line in enumerate(lines, 1):
            if line.startswith("```"):
                inside = line == "```console"
            elif inside and line.startswith("$ "):
                rest = lines[number:]
                end = next(i for i, each in enumerate(rest) if each.startswith(("$ ", "```")))
                yield Shown(page, number, line.removeprefix("$ "), tuple(rest[:end]))


SHOWN = tuple(shown())


def calls(text: str) -> list[list[str]]:
    """Every call of `muster` in a line or an inline code: also those in a substitution, after a pipe or an `&&`."""
    parts = re.split(r"\||&&|;|\$\(|\)", re.sub(r"\s# .*$", "", text))
    return [shlex.split(part) for each in parts if re.match(r"muster( |$)", part := each.strip(' "'))]


def check_call(words: list[str]) -> None:
    """Reads a call as the program would, and runs nothing. Raises TyperException where it is refused."""
    context = typer.Context(GROUP, info_name="muster")
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        assert rest.pop(0) in ("--debug", "--help")
    if rest and not rest[0].isupper():
        name, command, args = GROUP.resolve_command(context, rest)
        assert command is not None
        command.make_context(name, [each for each in args if each != "--help"], parent=context)


def check_mention(words: list[str]) -> None:
    """A call in running text may leave out what it needs, but its command and options must exist."""
    name = next((word for word in words[1:] if not word.startswith("-")), None)
    if name and not name.isupper():
        command = GROUP.get_command(typer.Context(GROUP, info_name="muster"), name)
        assert command, " ".join(words)
        known = {option for each in command.params for option in each.opts} | {"--help", "--debug"}
        assert {word for word in words if word.startswith("--")} <= known, " ".join(words)


def call(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    """Runs `muster` in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["muster", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_pages_show_commands() -> None:
    assert len(WRITTEN) >= 7
    assert len(SHOWN) >= 30


@pytest.mark.parametrize("each", SHOWN, ids=str)
def test_every_command_shown_exists(each: Shown) -> None:
    words = each.words
    assert words[0] in TOOLS or (ROOT / words[0]).is_file(), f"{words[0]} is no command that the docs use"
    for found in calls(each.command):
        check_call(found)
    if words[0] == "python" and words[1] == "-m":
        assert importlib.util.find_spec(words[2])


@pytest.mark.parametrize(
    "each",
    [each for each in SHOWN if each.words[0] == "muster" and each.words[1] in OFFLINE and "--job" not in each.words],
    ids=str,
)
def test_what_needs_no_cluster_prints_what_is_shown(
    each: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("clusters", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    argv = [word.replace("/tmp/", f"{tmp_path}/") for word in each.words[1:]]  # noqa: S108
    shown, code = each.output, Exit.PASS
    if shown and (told := re.fullmatch(r"exit (\d)", shown[-1])):
        shown, code = shown[:-1], Exit(int(told[1]))
    assert call(monkeypatch, *argv) == code
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = 0
    for line in shown:
        if line.strip() and line.strip() != "…":
            assert line.strip() in printed[at:], f"it does not print {line!r}, or not after the lines before it"
            at = printed.index(line.strip(), at) + 1


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_inline_commands_and_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for found in (found for code in inline if code.startswith("muster ") for found in calls(code)):
        check_mention(found)
    typed = [each.command for each in SHOWN if each.page == page] + inline
    named = {match[1] for each in typed if (match := re.match(r"make ([a-z]+)", each))}
    assert named <= targets, f"{page.name}: make {named - targets}"


def anchors(page: Path) -> set[str]:
    """What can be linked to in a page, as GitHub names headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize(
    "page", [*WRITTEN, *sorted((ROOT / "docs/reference").glob("*.md"))], ids=lambda page: page.name
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        where = (page.parent / path).resolve() if path else page
        assert where.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(where), f"{page.name}: {target}: no such heading"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(path: Path) -> None:
    rooms = "spec|policies|validation|roles|pool|stacks|images|muster|clusters|tests|docs|examples"
    named = re.findall(rf"`((?:{rooms})/[A-Za-z0-9_./-]+)`", path.read_text())
    missing = [each for each in named if "X" not in each and not (ROOT / each).exists()]
    assert not missing, f"{path.name}: {missing}"


@pytest.mark.parametrize("argv", [["bogus"], ["plan", "--bogus"], ["gate"], ["plan", "missing.yaml"]], ids=" ".join)
def test_wrong_use_ends_with_its_exit_code_and_no_fault(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *argv) == Exit.USAGE
    assert "fault in muster" not in capsys.readouterr().err


def test_a_certificate_that_is_missing_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path)
    argv = ["verify", str(tmp_path / "gpu-0.json"), "--key", str(tmp_path / PUBLIC)]
    assert call(monkeypatch, *argv) == Exit.INVALID
    assert "there is no certificate" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["muster sertify", "muster drift --quick"])
def test_a_wrong_mention_is_noticed_too(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_mention(calls(wrong)[0])


@pytest.mark.parametrize(
    "wrong", ["muster sertify", "muster plan x.yaml --svgg y", "muster gate", 'eval "$(muster envv)"']
)
def test_this_test_notices_what_does_not_exist(wrong: str) -> None:
    (found,) = calls(wrong)
    with pytest.raises(TyperException):
        check_call(found)
