"""What a role says that it takes is what it takes, and what the playbook gives it."""

from typing import Any

import pytest
from plan_inventories import OWN, ROLES, evaluate, hosts, read, variables

TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool, "dict": dict, "float": (int, float), "int": int, "list": list, "str": str,
}  # fmt: skip


def options(role: str) -> dict[str, Any]:
    found: dict[str, Any] = read(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize("role", [*OWN, "packages"])
def test_a_role_documents_exactly_the_defaults_it_has(role: str) -> None:
    documented = {name: option["default"] for name, option in options(role).items() if "default" in option}
    defaults = read(ROLES / role / "defaults" / "main.yml")
    required = {name for name, option in options(role).items() if option.get("required")}
    assert documented == {name: value for name, value in defaults.items() if name not in required}


@pytest.mark.parametrize("role", [*OWN, "packages"])
def test_every_option_is_required_or_has_a_default_and_is_described(role: str) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role}_")
        assert option["description"]
        assert option.get("required", False) is not ("default" in option), name


@pytest.mark.parametrize("role", OWN)
def test_the_playbook_gives_what_a_role_requires_and_nothing_it_does_not_know(role: str) -> None:
    given = read(ROLES / "group_vars" / "all" / f"{role}.yml")
    assert set(given) <= set(options(role))
    assert {name for name, option in options(role).items() if option.get("required")} <= set(given)


@pytest.mark.parametrize(("cluster", "host"), list(hosts()))
def test_what_a_plan_gives_has_the_type_that_the_role_asks_for(cluster: str, host: str) -> None:
    known = variables(cluster, host)
    for role in OWN:
        for name, option in options(role).items():
            value = evaluate(name, known)
            assert isinstance(value, TYPES[option["type"]]), f"{name} is {value!r}"
            for each in value if option.get("elements") else ():
                assert isinstance(each, TYPES[option["elements"]]), f"{name} has {each!r}"
