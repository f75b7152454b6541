"""Logins and jobs get the limits that the control asks for, whichever role sets them."""

import re

import pytest
from plan_inventories import ROLES, read, render, variables

from policies.catalogue import load_catalogue


def asked() -> float:
    """Open files that `host.limits.nofile` asks for."""
    (control,) = (each for each in load_catalogue() if each.id == "host.limits.nofile")
    (figure,) = (each.at_least for each in control.expect.any_of or () if each.at_least is not None)
    return figure


@pytest.mark.parametrize(
    "template",
    ["slurm/templates/slurmd-override.conf.j2", "base/templates/system.conf.j2", "base/templates/limits.conf.j2"],
)
def test_every_file_that_limits_open_files_gives_what_the_control_asks_for(template: str) -> None:
    text = render(ROLES / template, read(ROLES / "slurm/defaults/main.yml") | variables("lab", "gpu-0"))
    given = [float(each) for each in re.findall(r"nofile[ =](\d+)", text, re.IGNORECASE)]
    assert given
    assert min(given) >= asked()
