"""Each symptom has settings that say more of it, and none is set that the shell could take for something else."""

import subprocess

import pytest

from validation.diagnose.kinds import Symptom
from validation.diagnose.settings import load_settings, of


@pytest.mark.parametrize("symptom", Symptom)
def test_every_symptom_has_a_setting(symptom: Symptom) -> None:
    assert of(symptom)


def test_no_variable_is_set_twice_for_a_symptom() -> None:
    for symptom in Symptom:
        names = [each.variable for each in of(symptom)]
        assert len(names) == len(set(names))


def test_a_shell_sets_the_very_values() -> None:
    settings = load_settings()
    lines = "\n".join(f"export {each.variable}={each.value}" for each in settings)
    run = subprocess.run(["sh", "-eu"], input=f"{lines}\nenv\n", capture_output=True, text=True, timeout=30, check=True)
    assert {f"{each.variable}={each.value}" for each in settings} <= set(run.stdout.splitlines())
