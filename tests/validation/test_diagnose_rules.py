"""Every rule is found in its own cases, is not in what only looks alike, and says where it is known from."""

import pytest

from validation.diagnose.rule import Rule, load_rules

RULES = load_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_found_in_its_cases_and_nowhere_else(rule: Rule) -> None:
    for case in rule.cases:
        takes = rule.search(case.text)
        assert takes is not None, case.text
        assert takes.items() >= case.takes.items(), case.text
    for text in rule.not_cases:
        assert rule.search(text) is None, text
