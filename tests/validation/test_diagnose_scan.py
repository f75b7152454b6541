"""Every line that a rule means is found, however the file is packed, cut or written, and nothing else is."""

import bz2
import contextlib
import gzip
import hashlib
import lzma
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validation.diagnose import scan, sources
from validation.diagnose.filter import compiled
from validation.diagnose.job import read_job
from validation.diagnose.kinds import Role
from validation.diagnose.rule import Rule, load_rules
from validation.diagnose.scan import Scanned, Scanner
from validation.diagnose.sources import SourceError, find

RULES = load_rules()
SCANNER = Scanner(RULES)
WORDS = "node-7:2211:2310 [3] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"
PACK = {
    "job.log": bytes, "job.log.gz": gzip.compress, "job.log.bz2": bz2.compress, "job.log.xz": lzma.compress,
    "job.log.zst": zstandard.ZstdCompressor().compress, "job.log.3": bytes, "job.log-20261130.gz": gzip.compress,
    "no-ending": gzip.compress,
}  # fmt: skip


def scanned(path: Path) -> Scanned:
    (source,) = find([path]).files
    return SCANNER.scan(source)


@pytest.mark.parametrize("name", PACK)
def test_a_line_is_found_with_its_number_however_it_is_packed(tmp_path: Path, name: str) -> None:
    text = "nothing\n" * 4999 + WORDS + "\n" + "nothing\n" * 5000
    (tmp_path / name).write_bytes(PACK[name](text.encode()))
    found = scanned(tmp_path / name)
    (one,) = found.found
    assert (one.rule, one.line.number, one.line.node) == ("nccl.ib.retry_exceeded", 5000, "node-7")
    assert (found.lines, found.bytes, found.wrong) == (10000, len(text), "")


@given(
    before=st.integers(0, 40), cut=st.integers(1, 64), colour=st.booleans(), ends=st.sampled_from(["\n", "\r\n", ""])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_is_found_wherever_a_chunk_ends(tmp_path: Path, before: int, cut: int, colour: bool, ends: str) -> None:
    words = f"\x1b[31m{WORDS[:20]}\x1b[0m{WORDS[20:]}" if colour else WORDS
    (tmp_path / "job.log").write_text("x" * before + "\n" + words + ends, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", cut)
        found = scanned(tmp_path / "job.log")
    assert [(each.rule, each.line.number) for each in found.found] == [("nccl.ib.retry_exceeded", 2)]


def test_equal_lines_are_one_with_their_number_and_ranks_are_told_apart(tmp_path: Path) -> None:
    lines = [f"[default{rank}]:{WORDS}\n" for _ in range(1000) for rank in range(8)]
    (tmp_path / "job.log").write_text("".join(lines))
    found = scanned(tmp_path / "job.log").found
    assert sorted(each.line.rank for each in found) == list(range(8))
    assert sum(each.count for each in found) <= 8000
    assert [each.line.number for each in sorted(found, key=lambda each: each.line.number)] == list(range(1, 9))


def test_a_line_without_an_end_is_looked_at_around_the_hit(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("x" * 3_000_000 + WORDS + "y" * 3_000_000)
    (one,) = scanned(tmp_path / "job.log").found
    assert len(one.line.text) <= scan.LONGEST


def test_what_is_damaged_is_read_to_where_it_is_and_said(tmp_path: Path) -> None:
    raw = gzip.compress((WORDS + "\n" + "".join(f"line {n}\n" for n in range(100_000))).encode())
    (tmp_path / "job.log.gz").write_bytes(raw[: len(raw) // 2])
    found = scanned(tmp_path / "job.log.gz")
    assert [each.rule for each in found.found] == ["nccl.ib.retry_exceeded"]
    assert "what comes before was read" in found.wrong


def test_what_cannot_be_read_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        read_job([tmp_path / "gone"])
    with pytest.raises(SourceError, match="there are no files"):
        read_job([tmp_path])
    for raw in (b"\x7fELF" + bytes(4096), b"".join(hashlib.sha256(bytes([each])).digest() for each in range(200))):
        (tmp_path / "core").write_bytes(raw)
        with pytest.raises(SourceError, match="binary"):
            read_job([tmp_path])
    (tmp_path / "core").unlink()
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"no dump")
    with pytest.raises(SourceError, match=r"nothing could be read: .*nccl_trace_rank_0.*leave it out"):
        read_job([tmp_path])


def test_a_log_with_colours_bars_other_encodings_and_zeros_of_a_crash_is_text(tmp_path: Path) -> None:
    bars = "\x1b[31m 50%|#####     |\r\x1b[0m\b\b" * 200
    (tmp_path / "job.log").write_bytes((bars + WORDS + "Größe überschritten\n" * 100).encode("latin-1") + bytes(90))
    assert read_job([tmp_path]).read.files == 1


def test_what_is_no_log_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(4096))
    (tmp_path / "job.log").write_text(WORDS)
    (tmp_path / "train.py").write_text(f"log.error('{WORDS}')")
    (tmp_path / "notes.md.gz").write_bytes(gzip.compress(WORDS.encode()))
    read = read_job([tmp_path]).read
    assert read.files == 1
    assert [each.endswith("core: binary") for each in read.left_out] == [True]


def test_ranks_without_a_log_are_told_where_the_others_have_one_each(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 4, 5):
        (tmp_path / f"rank_{rank}.log").write_text(f"x: comm 0x5581 rank {rank} nranks 8 cudaDev 0 - Init START\n")
    assert read_job([tmp_path]).read.missing_ranks == (3, 6, 7)
    (tmp_path / "all.log").write_text(f"[rank3]: {WORDS}")
    assert read_job([tmp_path]).read.missing_ranks == (6, 7)


def test_where_ranks_share_a_log_or_few_were_given_none_is_missed(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("".join(f"[rank{rank}]: world_size=8\n" for rank in (0, 1, 2, 4, 5)))
    assert read_job([tmp_path]).read.missing_ranks == ()
    (tmp_path / "rank_0.log").write_text("world_size=9999999\n")
    assert read_job([tmp_path]).read.missing_ranks == ()


@given(st.binary(max_size=2000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "job.log").write_bytes(b"begin\n" + raw)
    with contextlib.suppress(SourceError):  # binary
        assert read_job([tmp_path / "job.log"]).read.lines == raw.count(b"\n") + 1


def test_many_files_are_read_by_several_processes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(4):
        (tmp_path / f"rank-{rank}.log").write_text("nothing\n" * 100 + (WORDS if rank == 2 else ""))
    alone = read_job([tmp_path], processes=1)
    monkeypatch.setattr("validation.diagnose.job.PARALLEL_BYTES", 1)
    assert read_job([tmp_path], processes=2) == alone
    assert alone.root_cause.rank == 2


def test_a_filter_that_was_kept_is_used_again_and_a_damaged_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    rules = RULES[:3]
    compiled(rules, frozenset())
    (kept,) = (tmp_path / "cache" / "diagnose").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("hyperscan.Database", None)  # nothing is compiled again
        again = compiled(rules, frozenset())
    hits: list[int] = []
    again.scan(rules[0].cases[0].text.encode(), match_event_handler=lambda number, *_: hits.append(number))
    assert 0 in hits
    kept.write_bytes(kept.read_bytes()[:-9])
    compiled(rules, frozenset()).scan(b"nothing", match_event_handler=lambda *_: None)


@pytest.mark.parametrize(
    "rule", [each for each in RULES if any(p.endswith("$") for p in each.patterns)], ids=lambda r: r.id
)
def test_lines_of_windows_end_where_they_end(tmp_path: Path, rule: Rule) -> None:
    for number, case in enumerate(rule.cases):
        (tmp_path / f"{number}.log").write_text(f"before\r\n{case.text}\r\nafter\r\n", newline="")
        assert rule.id in {each.rule for each in scanned(tmp_path / f"{number}.log").found}, case.text


def test_what_a_setting_lists_nobody_has_said(tmp_path: Path) -> None:
    said = "RuntimeError: CUDA out of memory. Tried to allocate 1.96 GiB"
    for text, there in ((f"retry_on: ['{said}', 'Stale file handle']", False), (f"['a', 'b'] failed: {said}", True)):
        (tmp_path / "job.log").write_text(text + "\n")
        assert ("memory.cuda" in {each.rule for each in scanned(tmp_path / "job.log").found}) is there, text


def test_what_a_line_quotes_it_does_not_say(tmp_path: Path) -> None:
    said = "CUDA error: out of memory"
    for text, there in (
        (f'before, it ended with "{said} on rank 3" and no more', False),
        (f'"a b c" failed: {said}', True),
    ):
        (tmp_path / "job.log").write_text(text + "\n")
        assert ("memory.cuda" in {each.rule for each in scanned(tmp_path / "job.log").found}) is there, text


@pytest.mark.parametrize(
    "before", ["answer: ", "  Prompt: ", "│ ", "### Response: ", "<|user|>: ", "<|im_start|>", "I get ", "so we saw "]
)
def test_what_a_model_was_given_or_wrote_nobody_has_said(tmp_path: Path, before: str) -> None:
    (tmp_path / "job.log").write_text(f"{before}RuntimeError: CUDA out of memory. Tried to allocate 1.96 GiB\n")
    assert scanned(tmp_path / "job.log").found == []


@pytest.mark.parametrize("ranks", [1, 300])
@pytest.mark.parametrize("end", ["", "no step\n" * 400, "step: 99999 of no shape that is known\n" * 100])
def test_the_last_step_of_each_rank_is_the_last_line_that_tells_one(tmp_path: Path, ranks: int, end: str) -> None:
    lines = [f"[default{rank}]:step: {step}  loss: 2.4\n" for step in range(1, 21) for rank in range(ranks)]
    (tmp_path / "job.log").write_text("".join(lines) + end)
    steps = read_job([tmp_path]).last_steps
    assert [(each.rank, each.step, each.line) for each in steps] == [
        (rank, 20, 19 * ranks + rank + 1) for rank in range(ranks)
    ]


@pytest.mark.parametrize("end", ["", "no step\n" * 400, "a long line of a traceback\n" * 2000])
def test_the_last_step_of_a_file_of_one_rank_is_found_before_a_long_traceback(tmp_path: Path, end: str) -> None:
    (tmp_path / "rank_3.log").write_text("".join(f"step: {step}  loss: 2.4\n" for step in range(1, 2001)) + end)
    (step,) = read_job([tmp_path]).last_steps
    assert (step.rank, step.step, step.line) == (3, 2000, 2000)


@pytest.mark.parametrize("more", range(0, 40, 3))
def test_a_line_that_the_look_back_cuts_is_nobodys(tmp_path: Path, more: int) -> None:
    lines = [f"[default{rank}]:step: {step}  loss: 2.4\n" for step in range(1, 5000) for rank in (10, 11)]
    (tmp_path / "job.log").write_text("".join(lines) + "x" * more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "TAIL", 1000)
        steps = read_job([tmp_path]).last_steps
    assert [(each.rank, each.step) for each in steps] == [(10, 4999), (11, 4999)]


@pytest.mark.parametrize("name", ["nccl.same_gpu", "gloo.peer_closed", "launch.counts"])
def test_a_line_that_hits_at_each_byte_is_looked_at_once_in_a_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (rule,) = (each for each in RULES if each.id == name)
    looked: list[str] = []
    plain = scan.head
    monkeypatch.setattr(scan, "head", lambda raw, year: (looked.append(raw), plain(raw, year))[1])
    raw = "".join(f"{each.text}{fill * 300_000}\n" for each in rule.cases for fill in "a0")
    (tmp_path / "job.log").write_text(raw + WORDS + "\n")
    found = scanned(tmp_path / "job.log")
    assert {name, "nccl.ib.retry_exceeded"} <= {each.rule for each in found.found}
    assert len(looked) < 4 * len(raw) / scan.WINDOW


def test_rules_that_hit_side_by_side_count_a_line_once(tmp_path: Path) -> None:
    plain = [each for each in RULES if each.role is Role.CASCADE][:2]
    # A copy would keep what was compiled of the rule.
    both = [Rule.model_validate(each.model_dump() | {"patterns": (r"rank \d+",), "unless": ()}) for each in plain]
    progress = next(each for each in RULES if each.role is Role.PROGRESS)
    (tmp_path / "job.log").write_text("it is rank 1234567\n" * 3)
    (source,) = find([tmp_path / "job.log"]).files
    assert [each.count for each in Scanner((*both, progress)).scan(source).found] == [3, 3]
