"""Versions that do not work together are found before anything is installed, and what is unknown is not ok."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.compatibility import Compatible, Rule, check, load_rules, proofs
from policies.pins import load_pins
from policies.reading import PolicyError

GOOD: dict[Any, str | None] = {
    "driver": "580.95.05",
    "fabric_manager": "580.95.05",
    "cuda": "13.0",
    "nccl": "2.30.4",
    "nccl_cuda": "13.0",
    "torch_cuda": "13.0.3",
}


CUDA_12 = {"cuda": "12.9", "nccl_cuda": "12.9", "torch_cuda": "12.9"}
CUDA_11 = {"cuda": "11.8", "nccl_cuda": "11.8", "torch_cuda": None}


def told(**changed: str | None) -> dict[str, Compatible]:
    return {each.rule: each.state for each in check({**GOOD, **changed})}  # type: ignore[dict-item]


def broken(**changed: str | None) -> set[str]:
    return {rule for rule, state in told(**changed).items() if state is Compatible.BROKEN}


def test_what_is_shipped_together_is_compatible() -> None:
    assert set(told().values()) == {Compatible.OK, Compatible.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        ({"driver": "570.172.08", "fabric_manager": "570.172.08"}, {"cuda.13.driver", "torch.13.driver"}),
        ({"fabric_manager": "580.82.07"}, {"fabric_manager.driver"}),
        ({"nccl_cuda": "12.9"}, {"nccl.cuda"}),
        ({"nccl": "2.28.7"}, {"nccl.restart"}),
        ({**CUDA_12, "driver": "520.61.05", "fabric_manager": "520.61.05"}, {"cuda.12.driver", "torch.12.driver"}),
        ({**CUDA_11, "driver": "440.33.01", "fabric_manager": "440.33.01"}, {"cuda.11.driver"}),
    ],
    ids=str,
)
def test_each_rule_finds_its_own_fault_and_no_other_speaks_up(changed: dict[str, str], rules: set[str]) -> None:
    assert broken(**changed) == rules


def test_every_rule_can_be_broken() -> None:
    found = broken(driver="520.61.05") | broken(nccl_cuda="12.9") | broken(nccl="2.28.7")
    found |= broken(cuda="12.9", torch_cuda="12.9", driver="520.61.05") | broken(cuda="11.8", driver="440.33.01")
    assert found == {rule.id for rule in load_rules()}


def test_a_version_that_is_not_pinned_is_unknown_and_not_ok() -> None:
    without = {name: version for name, version in GOOD.items() if name != "driver"}
    states = {each.rule: each.state for each in check(without)}
    assert states["cuda.13.driver"] is Compatible.UNKNOWN
    assert states["fabric_manager.driver"] is Compatible.UNKNOWN
    assert all(each.state is Compatible.UNKNOWN for each in check({}))


def test_a_component_that_is_not_installed_has_no_versions_to_compare() -> None:
    assert told(fabric_manager=None)["fabric_manager.driver"] is Compatible.NOT_APPLICABLE
    assert told(cuda=None)["cuda.13.driver"] is Compatible.NOT_APPLICABLE


def test_cuda_without_any_driver_is_not_ok() -> None:
    assert told(driver=None, fabric_manager=None)["cuda.13.driver"] is Compatible.UNKNOWN


def test_a_finding_says_versions_reason_and_source() -> None:
    (found,) = (each for each in check({**GOOD, "fabric_manager": "580.82.07"}) if each.state is Compatible.BROKEN)
    assert "fabric_manager 580.82.07, driver 580.95.05" in str(found)
    assert "https://" in str(found)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"needs": {"driver": ">=580"}},
        {"when": {"cuda": ">=13"}},
        {"same": ["driver"]},
        {"same": ["driver", "cuda"], "needs": {"driver": ">=580"}, "when": {"cuda": ">=13"}},
        {"when": {"cuda": "13+"}, "needs": {"driver": ">=580"}},
        {"when": {"gpu": ">=13"}, "needs": {"driver": ">=580"}},
    ],
    ids=str,
)
def test_a_rule_that_asks_for_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Rule.model_validate({"id": "a.b", "why": "because of this", "source": "https://x"} | wrong)


def test_rules_are_given_once_and_there_is_one_at_least(tmp_path: Path) -> None:
    rule = "- {id: a.b, same: [driver, fabric_manager], why: because of this, source: https://example.org}\n"
    path = tmp_path / "rules.yaml"
    path.write_text(rule + rule)
    with pytest.raises(PolicyError, match="twice"):
        load_rules(path)
    path.write_text("[]\n")
    with pytest.raises(PolicyError, match="no rules"):
        load_rules(path)


VERSIONS = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.none() | VERSIONS))
def test_any_versions_can_be_checked(components: Any) -> None:
    assert len(check(components)) == len(load_rules())


def test_a_design_whose_pins_do_not_work_together_or_are_unknown_is_not_proved() -> None:
    pins = load_pins("lab")
    assert all(proof.holds for proof in proofs(pins))
    for wrong in ({**pins.components, "fabric_manager": "580.82.07"}, {**pins.components, "driver": "570.86.15"}, {}):
        failed = [proof for proof in proofs(pins.model_copy(update={"components": wrong})) if not proof.holds]
        assert failed
        assert all(proof.id.startswith("pins.") and proof.fields == ("pins",) for proof in failed)
