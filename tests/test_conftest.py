"""The end of a test run says what was not tested for want of a GPU."""

from pathlib import Path

import pytest

pytest_plugins = "pytester"

HEADING = "*= not tested without an NVIDIA GPU =*"
TESTS = """
import pytest

@pytest.fixture
def gpu():
    pytest.skip("no NVIDIA GPU: nvidia-smi is not installed")

@pytest.mark.gpu
def test_with_a_fixture(gpu): ...

@pytest.mark.gpu
@pytest.mark.skipif(True, reason="there is no torch")
def test_with_a_condition(): ...

@pytest.mark.skip("of no interest here")
def test_gpu_is_only_in_its_name(): ...

@pytest.mark.gpu
def test_that_ran(): ...
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of one's own that has only this one's conftest.py."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    gpu: needs a GPU\n    lab: needs a lab\n    vm: boots\n")
    return pytester


def test_each_skipped_gpu_test_is_named_with_its_reason_at_the_very_end(project: pytest.Pytester) -> None:
    project.makepyfile(test_some=TESTS)
    told = project.runpytest("-ra")
    told.assert_outcomes(passed=1, skipped=3)
    told.stdout.fnmatch_lines(
        [
            "*= short test summary info =*",
            HEADING,
            "2 tests need a GPU and were skipped: *-m gpu*",
            "  test_some.py::test_with_a_condition: there is no torch",
            "  test_some.py::test_with_a_fixture: no NVIDIA GPU: nvidia-smi is not installed",
            "*= 1 passed, 3 skipped in *",
        ],
    )
    assert "only_in_its_name" not in str(told.stdout)


@pytest.mark.parametrize("options", [("-q",), ("-q", "-r", "N"), ("-m", "gpu"), ("--tb=no",)])
def test_no_option_of_the_run_hides_it(project: pytest.Pytester, options: tuple[str, ...]) -> None:
    project.makepyfile(test_some=TESTS)
    project.runpytest(*options).stdout.fnmatch_lines([HEADING, "2 tests need a GPU and were skipped: *"])


def test_one_is_counted_as_one(project: pytest.Pytester) -> None:
    project.makepyfile(test_some=TESTS)
    told = project.runpytest("-k", "with_a_condition")
    told.stdout.fnmatch_lines([HEADING, "1 test needs a GPU and was skipped: *"])


def test_nothing_is_said_where_nothing_was_skipped_for_want_of_a_gpu(project: pytest.Pytester) -> None:
    project.makepyfile(test_some=TESTS)
    told = project.runpytest("-k", "that_ran or only_in_its_name")
    told.assert_outcomes(passed=1, skipped=1)
    told.stdout.no_fnmatch_line(HEADING)


def test_a_run_that_collects_nothing_or_breaks_still_ends_well(project: pytest.Pytester) -> None:
    assert project.runpytest().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    project.makepyfile(test_some="import no_such_module")
    told = project.runpytest()
    told.assert_outcomes(errors=1)
    told.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_what_needs_a_lab_runs_last(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_some="import pytest\n"
        "@pytest.mark.lab\ndef test_a(): ...\n"
        "@pytest.mark.vm\ndef test_b(): ...\n"
        "def test_c(): ...\n"
    )
    project.runpytest("-v").stdout.fnmatch_lines(["*::test_c *", "*::test_a *", "*::test_b *"])
