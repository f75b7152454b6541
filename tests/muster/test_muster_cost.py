"""`muster cost`: exit codes, one document that keeps to its schema, a page that runs nothing, errors that help."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_runs

from muster.standing import Standing
from policies import evidence
from policies.exits import Exit
from validation.efficiency import sacct
from validation.efficiency.accounting import Accounting, AccountingError, parse
from validation.efficiency.figures import Report

Muster = Callable[..., tuple[Exit, str, str]]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cost"
FILE = ("--accounting", str(EXAMPLE / "sacct.txt"))
PRICES = ("--prices", str(EXAMPLE / "prices.yaml"))
HOSTILE = '<script>alert(1)</script>"\x1b[2J\u202e[bold]|\n'


def test_the_document_is_what_its_published_schema_says(muster: Muster) -> None:
    code, out, _ = muster("cost", *FILE, *PRICES, "--json", str(EXAMPLE / "run"))
    assert code is Exit.PASS
    found = json.loads(out)
    Report.model_validate(found, strict=False)
    schema = json.loads((ROOT / "docs/reference/cost.schema.json").read_text())
    assert set(found) == set(schema["properties"])
    assert found["total"]["useful_steps"] == pytest.approx(57_600)
    stragglers = {each["id"]: each["causes"]["straggler"]["gpu_hours"] for each in found["jobs"]}
    assert {job for job, hours in stragglers.items() if hours is not None} == {"4250"}  # the first has an older journal
    assert [each["slowest"][0]["node"] for each in found["jobs"] if each["slowest"]] == ["gpu-3"]


def test_without_journals_and_prices_it_says_that_nothing_is_known(muster: Muster) -> None:
    code, out, _ = muster("cost", *FILE)
    assert code is Exit.PASS
    assert "useful steps: not measured" in out
    assert "cost – " in out
    assert "goodput – " in out


@pytest.mark.parametrize(
    "argv",
    [
        ["--accounting", "missing.json"],
        [*FILE, "missing"],
        [*FILE, "--prices", "missing.yaml"],
        [*FILE, "--since", "2026-01-02", "--until", "2026-01-01"],
        [*FILE, "--price", "nan"],
        [*FILE, "--user", "ada", "--stack", "lab"],
        [*FILE, "--price", "-1"],
        [*FILE, "--currency", "far too long a word"],
        ["--accounting", "sacct.bin"],
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2_and_says_what_to_do(
    muster: Muster, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sacct.bin").write_bytes(bytes(range(256)))
    code, out, err = muster("cost", *argv)
    assert code is Exit.USAGE
    assert out == ""
    assert err
    assert "fault in muster" not in err


def test_wrong_prices_are_told_with_file_and_line(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("currency: EUR\nmodels:\n  h100: cheap\ngpu_hours: 3\n")
    code, _, err = muster("cost", *FILE, "--prices", str(tmp_path / "prices.yaml"))
    assert code is Exit.USAGE
    assert "prices.yaml:3" in err
    assert "prices.yaml:4" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--price", "1", "--accounting", "torn.txt"], "line 3"),
        ([*FILE, "strange"], "belong to no job"),
        ([*FILE, "empty"], "no start in its journal"),
        ([*FILE, "--prices", "prices.yaml"], "no price for GPUs"),
    ],
    ids=lambda each: str(each)[-30:],
)
def test_what_was_asked_for_and_could_not_be_counted_is_said_and_ends_with_4(
    muster: Muster, argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn.txt").write_text(
        "\n".join((EXAMPLE / "sacct.txt").read_text().splitlines()[:2]) + "\n4251|ada|tr"
    )
    (tmp_path / "prices.yaml").write_text("partitions: {old: 1}\n")
    for folder, journal in (
        ("strange", '{"kind":"started","at_s":1763200000,"attempt":"none.0.ab","world":8}\n'),
        ("empty", "no journal\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "goodput.jsonl").write_text(journal)
    code, out, _ = muster("cost", *argv)
    assert code is Exit.INCOMPLETE
    assert said in out


def test_a_run_whose_starts_torchrun_named_is_told_which_jobs_are_its_own(muster: Muster, tmp_path: Path) -> None:
    journal = (EXAMPLE / "run" / "goodput.jsonl").read_text()
    for job in ("4242", "4250"):
        journal = journal.replace(f'"{job}.', '"none.')
    (tmp_path / "goodput.jsonl").write_text(journal)
    assert muster("cost", *FILE, str(tmp_path))[0] is Exit.INCOMPLETE
    code, out, _ = muster("cost", *FILE, "--json", f"4242,4250={tmp_path}")
    assert code is Exit.PASS
    assert json.loads(out)["total"]["useful_steps"] == pytest.approx(57_600)


def test_names_may_be_anything_on_the_terminal_and_on_the_page(muster: Muster, tmp_path: Path) -> None:
    document = json.loads((ROOT / "tests/validation/recorded/sacct-24.05.json").read_text())
    for key in ("user", "name", "account", "cluster", "partition"):
        document["jobs"][0][key] = HOSTILE
    (tmp_path / "sacct.json").write_text(json.dumps(document))
    run = tmp_path / "<b>run"
    shutil.copytree(EXAMPLE / "run", run)
    html = tmp_path / "cost.html"
    _, out, err = muster(
        "cost", "--accounting", str(tmp_path / "sacct.json"), "--html", str(html), "--price", "1", str(run)
    )
    for text in (out, err, html.read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "⟨001B⟩" in out
    assert "<script" not in html.read_text()
    assert "&lt;script&gt;" in html.read_text()


def test_the_page_needs_nothing_beside_it_and_has_every_week_and_user(muster: Muster, tmp_path: Path) -> None:
    html = tmp_path / "made" / "cost.html"
    code, out, _ = muster("cost", *FILE, *PRICES, "--html", str(html), str(EXAMPLE / "run"))
    assert code is Exit.PASS
    assert str(html) in out
    page = html.read_text()
    assert "default-src 'none'" in page
    for outside in ("<script", "http://", "https://", "<img", "<link", "@import"):
        assert outside not in page
    for shown in ("2025-W46", "2025-W47", "ada", "bob", "4250", "2,035.20 EUR", "4250: rank 11"):
        assert shown in page
    assert page.count('class="key useful" style="flex') == 3  # two weeks and a user have a journal
    assert page.count('class="job"') == 2  # as many jobs have both figures


def test_a_figure_that_nobody_measured_is_said_on_the_page(muster: Muster, tmp_path: Path) -> None:
    muster("cost", *FILE, "--html", str(tmp_path / "cost.html"))
    page = (tmp_path / "cost.html").read_text()
    assert "stragglers (not measured)" in page
    assert "Not measured: no journal says what ranks waited" in page
    assert "Not measured: no job has both figures" in page


def section(cluster: Standing) -> str:
    """What the report of the newest run says of efficiency."""
    page = (cluster.reports / "latest" / "index.html").read_text()
    return page.partition('<section id="efficiency">')[2].partition("</section>")[0]


def test_the_clusters_report_shows_what_its_gpu_time_went_into(muster: Muster, cluster: Standing) -> None:
    code, _, err = muster("cost", *FILE, "--stack", "lab")
    assert (code, "muster certify first" in err) == (Exit.ERROR, True)
    evidence.save(sample_runs.run(cluster.plan), cluster.reports, sample_runs.NOW)
    assert muster("report")[0] is Exit.PASS
    assert "Not measured" in section(cluster)
    assert "<b>2025-W46</b>" not in section(cluster)

    code, out, _ = muster("cost", *FILE, *PRICES, "--stack", "lab", str(EXAMPLE / "run"))
    assert code is Exit.PASS
    assert "report: " in out
    shown = section(cluster)
    assert "Not measured" not in shown
    for word in ("<b>2025-W46</b>", 'href="cost.html"', "84.1%", "waited for gpu-3", "21.5"):
        assert word in shown
    assert (cluster.reports / "latest" / "cost.html").read_text().startswith("<!doctype html>")
    assert muster("report")[0] is Exit.PASS  # written again, it is still there
    assert section(cluster) == shown


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', "", '{"begin_s": 1e99}'])
def test_figures_that_cannot_be_read_are_no_figures(muster: Muster, cluster: Standing, text: str) -> None:
    evidence.save(sample_runs.run(cluster.plan), cluster.reports, sample_runs.NOW)
    (cluster.reports / "latest" / "cost.json").write_text(text)
    code, _, err = muster("report")
    assert code is Exit.ERROR
    assert "cost.json" in err
    assert "fault in muster" not in err


def test_times_that_no_calendar_has_are_no_figures(muster: Muster, cluster: Standing) -> None:
    evidence.save(sample_runs.run(cluster.plan), cluster.reports, sample_runs.NOW)
    muster("cost", *FILE, "--stack", "lab")
    path = cluster.reports / "latest" / "cost.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"begin_s": 10**18}))
    code, _, err = muster("report")
    assert (code, "fault in muster" in err) == (Exit.ERROR, False)


def test_without_a_file_sacct_is_asked_for_four_weeks_or_the_time_that_is_given(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(since: Any, until: Any, users: Any) -> Accounting:
        asked.append((until - since, list(users)))
        return parse((EXAMPLE / "sacct.txt").read_text())

    monkeypatch.setattr(sacct, "ask", ask)
    argv = ("--since", "2025-11-15", "--until", "2025-11-16", "--user", "bob", "--json")
    code, out, _ = muster("cost", *argv)
    assert (code, asked[0][0].days, asked[0][1]) == (Exit.PASS, 1, ["bob"])
    assert {each["user"] for each in json.loads(out)["jobs"]} == {"bob"}
    muster("cost", "--json")
    assert round(asked[1][0].total_seconds() / 86400) == 28


def test_a_scheduler_that_does_not_answer_is_an_error_and_not_an_empty_report(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> Accounting:
        raise AccountingError("sacct ended with 1: no database · mend that first")

    monkeypatch.setattr(sacct, "ask", ask)
    code, out, err = muster("cost")
    assert (code, out) == (Exit.ERROR, "")
    assert "no database" in err
