"""Debian packages out of data: what they are called, need and carry."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.store import Builder

FILES = Path(__file__).parent / "files"
MADE = 1761955200
"""2025-11-01, seconds since 1970: the time of all files and signatures, so that equal sources make equal packages.
It is long past, because apt refuses what a node with a wrong clock takes for the future."""

SIMULATED = """\
 Simulated by Muster for labs without GPUs. It has the name, version and
 dependencies of the vendor's package, and none of its contents. It is no use
 on a machine with a GPU: do not install it there."""


@dataclass(frozen=True)
class Carried:
    """A file of a package: where its content comes from, and where it goes."""

    to: str
    source: Path
    mode: int = 0o644
    fill: bool = False


@dataclass(frozen=True)
class Package:
    """One package of the vendor repository."""

    name: str
    version: str
    architecture: str
    fields: Mapping[str, str]
    """Further control fields, as in `Depends`."""
    summary: str
    entry: Mapping[str, str]
    """What {…} stands for in its files."""
    files: tuple[Carried, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    configured_by: Path | None = None
    """The script that dpkg runs when the package is in place."""

    @property
    def file_name(self) -> str:
        """As the vendor's repository names it."""
        return f"{self.name}_{self.version}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Section": "non-free/utils",
            "Priority": "optional",
            **self.fields,
            "Description": f"simulated: {self.summary}\n{SIMULATED}",
        }
        return "".join(f"{key}: {value}\n" for key, value in lines.items())


def filled(text: str, entry: Mapping[str, str]) -> str:
    """A text with each `{field}` of an entry replaced. Other braces stay."""
    for key, value in entry.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def packages(recipe: Mapping[str, Any], versions: Mapping[str, Any]) -> list[Package]:
    """Every package that a recipe makes of a versions file, without the compiled libraries. Pure."""
    return [
        _package(recipe, template, _entry(release))
        for kind, templates in recipe["for_each"].items()
        for release in versions[kind]
        for template in templates
    ]


def _entry(release: Mapping[str, Any]) -> dict[str, str]:
    entry = {key: str(value) for key, value in release.items()}
    if "release" in entry:
        entry["release_dashed"] = entry["release"].replace(".", "-")
    return entry


def _package(recipe: Mapping[str, Any], template: Mapping[str, Any], entry: dict[str, str]) -> Package:
    fields = {"Maintainer": recipe["maintainer"], "Homepage": recipe["homepage"]}
    for key in ("provides", "conflicts", "depends"):
        if key in template:
            fields[key.title()] = filled(" ".join(template[key].split()), entry)
    return Package(
        name=filled(template["name"], entry),
        version=filled(template["version"], entry),
        architecture=template.get("architecture", recipe["architecture"]),
        fields=fields,
        summary=filled(template["summary"], entry),
        entry=entry,
        files=tuple(
            Carried(
                to=filled(each["to"], entry),
                source=FILES / each["from"],
                mode=int(each.get("mode", "0644"), 8),
                fill=each.get("fill", False),
            )
            for each in template.get("files", ())
        ),
        links=template.get("links", {}),
        configured_by=FILES / template["configured_by"] if "configured_by" in template else None,
    )


def make(package: Package, work: Path, into: Path, builder: Builder) -> Path:
    """Packs one package into a folder and returns the file."""
    tree = work / f"{package.name}_{package.version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(package.control())
    for carried in package.files:
        place = tree / carried.to.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if carried.fill:
            place.write_text(filled(carried.source.read_text(), package.entry))
        else:
            shutil.copyfile(carried.source, place)
        place.chmod(carried.mode)
    for name, target in package.links.items():
        place = tree / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    if package.configured_by:
        shutil.copyfile(package.configured_by, tree / "DEBIAN/postinst")
        (tree / "DEBIAN/postinst").chmod(0o755)
    if package.architecture != "all" and package.links:
        (tree / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
    if configured := [each.to for each in package.files if each.to.startswith("/etc/")]:
        (tree / "DEBIAN/conffiles").write_text("".join(f"{each}\n" for each in configured))
    for folder in (tree, *(each for each in tree.rglob("*") if each.is_dir() and not each.is_symlink())):
        folder.chmod(0o755)
    made = into / package.file_name
    builder.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, made],
        env={"SOURCE_DATE_EPOCH": str(MADE)},
    )
    return made
