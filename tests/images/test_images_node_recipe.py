"""The node image's recipe, and where its packages come from."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import node, vendor
from images.node.mirror import DEBIAN, SECURITY, choose
from images.store import read_recipe
from policies.pins import load_pins

RECIPE = Path(node.__file__).parent / "recipe"


@pytest.fixture
def recipe():
    """The package list."""
    return read_recipe(RECIPE / "packages.yaml")


def test_every_package_is_there_once_and_for_a_reason(recipe):
    packages = [package for group in recipe["groups"] for package in group["packages"]]
    assert len(packages) == len(set(packages))
    assert all(group["why"] for group in recipe["groups"])


def test_every_debian_package_that_the_lab_pins_is_in_the_image(recipe):
    packages = {package for group in recipe["groups"] for package in group["packages"]}
    pins = load_pins("lab").packages
    simulated = {each.name for each in vendor.recipe()}
    wanted = {name for group in pins.values() for name in group if name not in simulated and not name.startswith("lib")}
    assert wanted
    assert wanted <= packages


def test_only_what_a_bare_machine_needs_is_enabled():
    lines = (RECIPE / "50-muster.preset").read_text().splitlines()
    rules = [line.split() for line in lines if line and not line.startswith("#")]
    assert rules[-1] == ["disable", "*"]
    assert {unit for verb, unit in rules[:-1]} == {"ssh.service", "systemd-pstore.service", "getty@.service"}


def test_the_scripts_pass_shellcheck_and_can_be_run():
    for script in (RECIPE / "customise", RECIPE / "finish"):
        assert script.stat().st_mode & 0o111
        found = subprocess.run(["shellcheck", script], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout


def test_the_machines_own_mirror_and_proxy_are_used():
    found = choose(
        "bookworm",
        targets="Debian|bookworm|http://mirror.site/debian\nDebian|bookworm-security|http://mirror.site/security\n"
        "Docker|bookworm|http://docker.site\nnonsense\n",
        proxies="Acquire::http::Proxy=http://proxy.site:3142\n",
    )
    assert found.site == "http://mirror.site/debian"
    assert [line.split("] ")[1] for line in found.lines] == [
        "http://mirror.site/debian bookworm main",
        "http://mirror.site/debian bookworm-updates main",
        "http://mirror.site/security bookworm-security main",
    ]
    assert found.options == ('Acquire::http::Proxy "http://proxy.site:3142";',)


def test_a_machine_of_another_distribution_uses_debians_mirror():
    found = choose("bookworm", targets="Ubuntu|noble|http://archive.ubuntu.com/ubuntu\n", proxies="")
    assert (found.site, found.options) == (DEBIAN, ())
    assert f" {SECURITY} bookworm-security main" in found.lines[2]


@given(st.text(), st.text())
def test_whatever_apt_prints_every_source_is_signed(targets, proxies):
    found = choose("bookworm", targets=targets, proxies=proxies)
    assert all(
        line.startswith("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ") for line in found.lines
    )
    assert all(option.count('"') == 2 and option.endswith('";') for option in found.options)


@pytest.mark.parametrize("words", [[], ["make"], ["build", "twice"]])
def test_a_wrong_command_line_is_told_and_ends_with_2(words):
    found = subprocess.run([sys.executable, "-m", "images.node", *words], capture_output=True, text=True)
    assert found.returncode == 2
    assert "build|digest|path" in found.stderr
