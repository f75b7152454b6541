"""A run that was cut off leaves none of its notifications and none of its promises: the next one finds what is open."""

from typing import Any

import pytest
from plan_inventories import ROLES, evaluate, read, variables

LATER = {"changed": True}
NOTHING = {"changed": False, "stdout": ""}


def named(path: str, name: str) -> dict[str, Any]:
    (found,) = (task for task in read(ROLES / path) if task["name"] == name)
    return dict(found)


def runs(task: dict[str, Any], **results: Any) -> bool:
    """Whether a task's condition holds on a converged GPU node."""
    return bool(evaluate(f"({task['when']}) | bool", variables("lab", "gpu-0", **results)))


@pytest.mark.parametrize(
    ("differs", "unproved", "applied"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_a_table_stays_only_once_a_login_has_proved_it(differs: bool, unproved: bool, applied: bool) -> None:
    """The timer of a run that was cut off would take back what is right now, after this run said that it is."""
    found = {"firewall_found": {"changed": differs}, "firewall_unproved": {"changed": unproved}}
    assert runs(named("firewall/tasks/main.yml", "Put the new table into force"), **found) is applied


def test_the_way_back_is_to_the_last_table_that_was_proved() -> None:
    back = named("firewall/tasks/apply.yml", "Write down how to go back")
    assert runs(back, firewall_unproved=NOTHING)
    assert not runs(back, firewall_unproved=LATER)
    names = [task["name"] for task in read(ROLES / "firewall/tasks/apply.yml")]
    assert names.index("Stop the timer of a run that was cut off") < names.index("Set the timer that goes back")


def test_the_timer_is_looked_for_before_the_table_is_compared() -> None:
    """The other way round it could run out in between, and take back what was just found right."""
    names = [task["name"] for task in read(ROLES / "firewall/tasks/main.yml")]
    assert names.index("Look for a table that no login has proved") < names.index("Compare the table with it")
