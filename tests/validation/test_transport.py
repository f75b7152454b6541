"""Commands on nodes: a node that does not answer is not a command that fails, and nothing outlives its limits."""

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

from validation import transport
from validation.transport import Completed, Local, Ssh, Unreachable, execute, put


def local(argv: list[str], stdin: bytes = b"", timeout: float = 20) -> Completed:
    return asyncio.run(execute("here", argv, stdin, timeout))


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """An `ssh` that gives the command to a shell, as sshd does with a user's."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec /bin/sh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return Ssh(tmp_path / "config")


def test_a_node_that_does_not_answer_is_unreachable_in_sshs_own_words(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host gpu-0\n  HostName 127.0.0.1\n  Port 1\n  UserKnownHostsFile /dev/null\n")
    with pytest.raises(Unreachable, match="Connection refused"):
        asyncio.run(Ssh(config).run("gpu-0", ["true"], timeout=30))


def test_a_configuration_that_is_missing_is_unreachable_too(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="config"):
        asyncio.run(Ssh(tmp_path / "none").run("gpu-0", ["true"], timeout=30))


def test_a_node_is_never_taken_for_an_option(ssh: Ssh) -> None:
    done = asyncio.run(ssh.run("-oProxyCommand=true", ["echo", "x"]))
    assert done.stdout == b"x\n"


@pytest.mark.parametrize("status", [0, 1, 67, 254, 255])
def test_a_command_that_fails_is_never_unreachable(ssh: Ssh, status: int) -> None:
    done = asyncio.run(ssh.run("gpu-0", ["sh", "-c", f"exit {status}"]))
    assert done.status == min(status, 254)


def test_arguments_arrive_as_they_were_sent(ssh: Ssh) -> None:
    strange = ["a b", "$(id)", "'", '"', "", "*", "a\nb", "||", "ä"]
    done = asyncio.run(ssh.run("gpu-0", ["printf", "%s|", *strange]))
    assert done.stdout.decode() == "".join(f"{each}|" for each in strange)


def test_more_nodes_than_places_take_turns(ssh: Ssh, tmp_path: Path) -> None:
    narrow = Ssh(tmp_path / "config", width=2)

    async def all_of_them() -> list[Completed]:
        return await asyncio.gather(*(narrow.run(f"gpu-{i}", ["sleep", "0.2"], timeout=5) for i in range(6)))

    started = time.monotonic()
    assert {each.status for each in asyncio.run(all_of_them())} == {0}
    assert time.monotonic() - started >= 0.6


def test_what_does_not_end_is_ended_with_all_that_it_started_and_keeps_what_it_said() -> None:
    done = local(["sh", "-c", "echo begun; sleep 4711 & sleep 4711"], timeout=0.5)
    assert done.status is None
    assert done.limit == "no end within 0.5 s"
    assert done.stdout == b"begun\n"
    assert "no end within" in done.last_words()
    time.sleep(0.2)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x004711" in _quietly(path)]


def _quietly(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("stream", [1, 2])
def test_a_flood_is_cut_off(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "OUTPUT_LIMIT", 100_000)
    done = local(["sh", "-c", f"exec yes >&{stream}"])
    assert done.status is None
    assert "bytes of output" in (done.limit or "")
    assert len(done.stdout) <= 100_000


def test_a_background_process_that_keeps_the_stream_open_is_not_waited_for() -> None:
    started = time.monotonic()
    done = local(["sh", "-c", "sleep 8 & echo done"])
    assert (done.status, done.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 6


def test_much_input_to_a_command_that_reads_none_is_no_error() -> None:
    assert local(["true"], stdin=b"x" * 5_000_000).status == 0
    assert local(["wc", "-c"], stdin=b"x" * 5_000_000).stdout.strip() == b"5000000"


def test_cancelling_ends_the_command() -> None:
    async def work() -> None:
        task = asyncio.create_task(execute("here", ["sleep", "1234567"], b"", 60))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x001234567" in _quietly(path)]


def test_a_file_arrives_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "suite.pyz"
    asyncio.run(put(Local(), "here", b"content", str(path)))
    assert path.read_bytes() == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["suite.pyz"]


def test_a_file_that_does_not_arrive_whole_is_not_there(tmp_path: Path) -> None:
    class Lossy(Local):
        async def run(self, node, argv, stdin=b"", timeout=60.0):  # type: ignore[no-untyped-def]
            return await super().run(node, argv, stdin[:-1], timeout)

    with pytest.raises(OSError, match="what arrived is not what was sent"):
        asyncio.run(put(Lossy(), "here", b"content", str(tmp_path / "suite.pyz")))
    assert not list(tmp_path.iterdir())
