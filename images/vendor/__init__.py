"""The lab's vendor repository: NVIDIA's package names, versions and dependencies, with simulated GPUs inside.

`versions.yaml` says which releases there are, `packages.yaml` how they are packaged, `nvml/` is the simulated NVML.
Everything in them says that it is simulated: package descriptions, `nvidia-smi`, and the library by exporting
`musterSimulated`.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from images.store import Builder, Say, keep, read_recipe, recipe_digest, recipe_files
from images.vendor.deb import Carried, Package, make, packages
from images.vendor.nvml import SONAME, compile_library, header
from images.vendor.repository import KEY, index, sign
from spec.folders import cache

__all__ = ["KEY", "build", "digest", "folder", "key", "recipe"]

_FOLDER = Path(__file__).parent
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def digest() -> str:
    """The name of the repository that this checkout makes."""
    files = [each for each in recipe_files(_FOLDER) if each.name != "gpus.py"]  # made of a spec, in no package
    return recipe_digest(files, relative_to=_FOLDER)


def folder(of: str) -> Path:
    """Where the repository of a digest is kept, whether it is built or not."""
    return cache() / "images" / "vendor" / of


def key(of: str) -> str:
    """The public key of a built repository, as text. Raises FileNotFoundError where it is not built."""
    return (folder(of) / KEY).read_text()


def recipe() -> list[Package]:
    """Every package of the repository."""
    return packages(read_recipe(_FOLDER / "packages.yaml"), read_recipe(_FOLDER / "versions.yaml"))


def build(say: Say) -> Path:
    """Builds the repository unless it is there, and returns its folder.

    apt reads it as `deb [signed-by=FOLDER/vendor.asc] file:FOLDER ./`. Needs gcc, dpkg-deb, gpg and PyPI; takes
    seconds. Raises BuildError.
    """
    return keep(folder(digest()), lambda into, builder: _make(into, builder, say), say)


def _make(into: Path, builder: Builder, say: Say) -> None:
    with tempfile.TemporaryDirectory(prefix="muster-vendor-") as name:
        work = Path(name)
        include = header(say)
        made = recipe()
        say(f"vendor repository: {len(made)} simulated packages")
        for package in made:
            make(_with_library(package, include, work, builder), work / "trees", into, builder)
    index(into)
    sign(into, builder)
    say("vendor repository: indexed and signed")


def _with_library(package: Package, include: Path, work: Path, builder: Builder) -> Package:
    """The package that carries NVML gets the library of its driver version; all others stay as they are."""
    if package.name != "libnvidia-ml1":
        return package
    driver = package.entry["version"]
    library = compile_library(work, include, driver, int(package.entry["cuda"]), builder)
    return replace(
        package,
        files=(Carried(to=f"{_LIBRARIES}/{library.name}", source=library),),
        links={f"{_LIBRARIES}/{SONAME}": library.name},
    )
