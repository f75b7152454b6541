"""What people see of long work."""

import errno
from collections.abc import Callable

import pytest
from paper_pool import Slurm
from rich.text import Text

from muster import cli
from muster.console import SILENCE_S, Problem, out, progress, result, say, table
from muster.standing import Standing
from policies.exits import Exit

HOSTILE = "a\x1b]0;title\x07\x9b2Jb\u202ec \r[/red] [bold]x"
"""What a node may say: sequences that rule a terminal, a turned line, and rich's own markup."""


def test_a_log_keeps_what_is_worth_it_and_shows_that_long_silent_work_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with progress("working", clock=lambda: now) as show:
        show("passing at once", False)
        show("kept", True)
        now = SILENCE_S - 1.0
        show("passing soon", False)
        now = SILENCE_S + 1.0
        show("passing late", False)
        show("passing right after it", False)
    assert capsys.readouterr().err.split("\n") == ["working", "kept", "passing late", ""]


def in_a_table(text: str) -> None:
    rows = table("column")
    rows.add_row(text)
    out.print(rows)


@pytest.mark.parametrize(
    "show",
    [
        say,
        result,
        in_a_table,
        lambda text: result(Text.assemble((text, "bold red"))),
        lambda text: Problem(text, where=text, advice=text).show(),
        lambda text: progress(text).__enter__(),
    ],
)
def test_what_nodes_say_is_shown_and_never_obeyed(
    show: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    show(HOSTILE)
    shown = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(shown)
    assert "[/red] [bold]x" in shown, "no markup"
    assert "⟨001B⟩]0;title" in shown


def test_a_fault_in_muster_is_told_whatever_its_message_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Exit.ERROR
    told = capsys.readouterr().err
    assert "this is a fault in muster" in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("error", "where", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/state/x"), "/state/x: ", "make room"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/state/x"), "/state/x: ", "quota"),
        (PermissionError(errno.EACCES, "Permission denied", "/state/x"), "/state/x: ", "that right"),
        (OSError(errno.EROFS, "Read-only file system", "/state/x"), "/state/x: ", "read-only"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/state/x"), "/state/x: ", "look at what is there"),
        (OSError(errno.EXDEV, "Cross-device link", "/a", None, "/b"), "/a -> /b: ", "look at what is there"),
        (OSError("node-0: gone"), "node-0: gone", "look at what is there"),
        (TimeoutError(), "TimeoutError", "look at what is there"),
    ],
)
def test_what_the_operating_system_refuses_is_no_fault_in_muster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, where: str, advice: str
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Exit.ERROR
    told = capsys.readouterr().err
    assert told.startswith(where)
    assert advice in told
    assert "fault in muster" not in told
    assert "Traceback" not in told


def test_an_administrators_reason_in_brackets_does_not_break_the_status(
    cluster: Standing, slurm: Slurm, muster: Callable[..., tuple[Exit, str, str]]
) -> None:
    slurm.nodes["gpu-0"]["reason"] = "see [/var/log/messages] \x1b[2J"
    code, told, _ = muster("status")
    assert code is Exit.PASS
    assert "see [/var/log/messages]" in " ".join(told.split())
    assert "\x1b" not in told
