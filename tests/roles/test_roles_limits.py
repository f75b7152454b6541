"""Logins and jobs get the limits that the control asks for, whichever role sets them."""

import re
import subprocess

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


REDIRECTS = """
ip link add before type veth peer name peer
sysctl --quiet --ignore --load=/dev/stdin
ip link add after type veth peer name other
cd /proc/sys/net
for each in before after; do
    cat ipv4/conf/$each/accept_redirects ipv4/conf/$each/send_redirects ipv4/conf/$each/secure_redirects
done
cat ipv6/conf/after/accept_ra ipv6/conf/after/accept_redirects 2>&- || true
"""


def test_no_interface_follows_a_redirect_whether_it_came_before_the_settings_or_after() -> None:
    """The kernel asks `all` and the interface's own: where one of the two is 1, a host follows redirects."""
    settings = render(ROLES / "base/templates/sysctl.conf.j2", variables("lab-containers", "gpu-0"))
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec", REDIRECTS],
        input=settings, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = run.stdout.split()
    assert len(found) in (6, 8)  # without IPv6 or with it
    assert set(found) == {"0"}
