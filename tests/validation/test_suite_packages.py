"""Packages as dpkg tells them."""

from recorded_host import Answers, recorded

from validation.node import packages


def test_packages_and_what_became_of_them() -> None:
    found = packages.read_packages(recorded("dpkg_query.txt"))
    assert {each.name: each.version for each in found}["chrony"] == "4.3-2+deb12u3"
    assert all(each.installed for each in found)
    one, two, three = packages.read_packages(
        "nvidia-open\t580.95.05-1\thold\tinstalled\tok\nlibnccl2\t2.28.9\tinstall\thalf-configured\tok\n"
        "slurmd\t22.05\tinstall\tinstalled\treinstreq\n"
    )
    assert (one.held, one.installed) == (True, True)
    assert (two.installed, three.installed) == (False, False)


def test_pins_are_answered_by_name_and_a_missing_package_has_no_version() -> None:
    host = Answers({"dpkg-query": "dpkg_query.txt"}, {"pins.packages": {"chrony": "4.3", "nvidia-open": "580"}})
    assert packages.pinned(host) == {"chrony": "4.3-2+deb12u3", "nvidia-open": None}
