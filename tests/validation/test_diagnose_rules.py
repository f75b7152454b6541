"""Every rule is found in its own cases, is not in what only looks alike, and says where it is known from."""

from pathlib import Path

import pytest

from validation.diagnose.kinds import Role
from validation.diagnose.rule import Rule, load_rules
from validation.diagnose.scan import Scanner
from validation.diagnose.sources import find

RULES = load_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_found_in_its_cases_and_nowhere_else(rule: Rule) -> None:
    for case in rule.cases:
        takes = rule.search(case.text)
        assert takes is not None, case.text
        assert takes.items() >= case.takes.items(), case.text
    for text in rule.not_cases:
        assert rule.search(text) is None, text


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_case_is_lost_in_a_file(rule: Rule, scanner: Scanner, tmp_path: Path) -> None:
    """The filter over the raw bytes lets every line pass that the rule means."""
    for number, case in enumerate(rule.cases):
        path = tmp_path / f"{number}.log"
        path.write_text(f"before\n{case.text}\nafter\n", encoding="utf-8")
        (source,) = find([path]).files
        assert rule.id in {each.rule for each in scanner.scan(source).found}, case.text


def test_a_cause_is_not_found_in_what_another_rule_means() -> None:
    """A line names one cause: two rules that are found in it mean the same, or one says that it explains the other."""
    clashes = [
        f"{rule.id} is found in a case of {other.id}: {case.text[:120]}"
        for rule in RULES
        if rule.role is Role.ROOT
        for other in RULES
        if rule.kind != other.kind and not _explains(rule, other) and not _explains(other, rule)
        for case in other.cases
        if rule.search(case.text) is not None
    ]
    assert not clashes, "\n".join(clashes)


def _explains(rule: Rule, other: Rule) -> bool:
    return not {other.kind, other.id}.isdisjoint(rule.explains)


HINTS = (
    "HINT: In many cases this error occurs when NICs are not cross-rail connected.",
    "HINT: In many cases this error occurs when the incorrect GID index is forced by NCCL_IB_GID_INDEX",
    "HINT: In many cases this error occurs when ACS is enabled which would break GPU Direct RDMA protocol.",
    "HINT: In many cases this error occurs when NIC on the same instance cannot talk to each other.",
    "HINT: In many cases this error occurs when the NCCL_IB_TIMEOUT is set too short.",
    "This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.",
)
"""What NCCL 2.30 prints beside errors. Its switch falls through from case to case: hints of other errors come too."""


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_anchors_nothing(hint: str) -> None:
    assert [rule.id for rule in RULES if rule.search(f"node-1:2211:2310 [3] NCCL WARN {hint}") is not None] == []
