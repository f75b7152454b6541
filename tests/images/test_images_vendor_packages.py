"""The vendor repository has the vendor's names, versions and dependencies, and says that it is simulated."""

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from images import vendor
from images.vendor.deb import filled
from policies.pins import load_pins
from spec.schema import Role


def field(deb: Path, name: str) -> str:
    """One control field of a package file."""
    return subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def repository() -> Path:
    """The built repository."""
    return vendor.build(print)


def test_the_labs_pins_are_in_the_repository():
    have = {(each.name, each.version) for each in vendor.recipe()}
    pins = load_pins("lab").packages[Role.COMPUTE]
    for name, version in pins.items():
        if "nvidia" in name or "nccl" in name or "cuda" in name:
            assert (name, version) in have


def test_there_is_a_second_driver_to_be_wrong_with():
    drivers = [each.version for each in vendor.recipe() if each.name == "nvidia-driver-cuda"]
    assert drivers == ["580.95.05-1", "580.82.07-1"]


def test_every_package_calls_itself_simulated_and_warns():
    for package in vendor.recipe():
        assert "Description: simulated: " in package.control()
        assert "do not install it there" in package.control()


def test_nothing_stays_unfilled():
    for package in vendor.recipe():
        carried = [each.to for each in package.files]
        text = package.control() + "".join(carried)
        assert not re.search(r"\{[a-z_]+\}", text), text
        for each in package.files:
            if each.fill:
                assert "{version}" not in filled(each.source.read_text(), package.entry)


def test_all_parts_of_a_driver_are_of_one_version():
    drivers = {"libnvidia-ml1", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-driver-cuda"}
    for package in vendor.recipe():
        for name, version in re.findall(r"(\S+) \(= ([^)]+)\)", package.fields.get("Depends", "")):
            assert name in drivers
            assert version == package.version
    cuda = next(each for each in vendor.recipe() if each.name == "nvidia-driver-cuda")
    assert {name for name in drivers if name in cuda.fields["Depends"]} == drivers - {"nvidia-driver-cuda"}


def test_no_package_carries_a_kernel_module(repository):
    for deb in repository.glob("*.deb"):
        listing = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True).stdout
        assert ".ko" not in listing
        assert "/lib/modules" not in listing


def test_what_apt_is_told_is_what_the_files_are(repository):
    stanzas = (repository / "Packages").read_text().strip().split("\n\n")
    assert len(stanzas) == len(list(repository.glob("*.deb"))) == len(vendor.recipe())
    for stanza in stanzas:
        facts = dict(re.findall(r"^([A-Za-z0-9]+): (.*)$", stanza, flags=re.MULTILINE))
        deb = repository / facts["Filename"]
        assert hashlib.sha256(deb.read_bytes()).hexdigest() == facts["SHA256"]
        assert (facts["Package"], facts["Version"]) == (field(deb, "Package"), field(deb, "Version"))
    digest = hashlib.sha256((repository / "Packages").read_bytes()).hexdigest()
    assert f" {digest} " in (repository / "Release").read_text()


def test_the_signature_is_good_and_an_edited_index_is_not(repository, tmp_path):
    subprocess.run(["gpg", "--dearmor", "--output", tmp_path / "key", repository / vendor.KEY], check=True)
    check = ["gpgv", "--keyring", str(tmp_path / "key")]
    subprocess.run([*check, str(repository / "InRelease")], check=True, capture_output=True)
    edited = tmp_path / "InRelease"
    edited.write_text((repository / "InRelease").read_text().replace("Origin: Muster", "Origin: Mustard"))
    assert subprocess.run([*check, str(edited)], capture_output=True).returncode != 0


def test_no_secret_key_is_left(repository):
    listing = subprocess.run(["gpg", "--list-packets", repository / vendor.KEY], capture_output=True, text=True).stdout
    assert "public key packet" in listing
    assert "secret" not in listing
    assert not list(Path(tempfile.gettempdir()).glob("muster-gpg-*"))


def test_what_is_built_twice_is_the_same_but_for_the_signature(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    again = vendor.build(print)
    assert again != repository
    assert (again / "Release").read_bytes() == (repository / "Release").read_bytes()
