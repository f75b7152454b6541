"""Builds the simulated NVML: the C library in `nvml/`, against NVIDIA's own header."""

import re
import sys
from pathlib import Path

from images.store import Builder, Say, keep, recipe_digest
from spec.folders import cache

SOURCE = Path(__file__).parent / "nvml"
_REQUIREMENTS = Path(__file__).parent / "requirements.txt"
_PROTOTYPE = re.compile(r"\bnvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(")

SONAME = "libnvidia-ml.so.1"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations")

UV = Path(sys.executable).parent / "uv"
"""`setup` puts it beside this Python, whether or not it is on PATH."""


def header(say: Say) -> Path:
    """The folder that has NVIDIA's nvml.h: from the pinned package, fetched once. Raises BuildError."""
    name = recipe_digest([_REQUIREMENTS], relative_to=_REQUIREMENTS.parent)
    return next(keep(cache() / "images" / "nvml-header" / name, _fetch, say).glob("nvidia/*/include"))


def _fetch(into: Path, builder: Builder) -> None:
    platform = ("--python-platform", "x86_64-manylinux2014")
    builder.run(
        [
            *(str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes", *platform),
            *("--target", into, "--requirements", _REQUIREMENTS),
        ]
    )


def functions(header: str) -> list[str]:
    """Every function that the header declares to return a status, in its order."""
    return list(dict.fromkeys(_PROTOTYPE.findall(header)))


def unsupported(names: list[str]) -> str:
    """C source in which each function says NVML_ERROR_NOT_SUPPORTED, unless another source defines it."""
    lines = [f'__attribute__((weak, visibility("default"))) int {name}(void) {{ return 3; }}' for name in names]
    return "\n".join(["/* Made from nvml.h: what is not simulated. */", *lines, ""])


def compile_library(into: Path, include: Path, driver: str, cuda: int, builder: Builder, *flags: str) -> Path:
    """Compiles the library of a driver version into a folder and returns its path.

    Args: `cuda` as NVML gives CUDA's version (13000 is 13.0), `flags` go to the compiler as they are.
    """
    rest = into / "unsupported.c"
    rest.write_text(unsupported(functions((include / "nvml.h").read_text())))
    library = into / f"libnvidia-ml.so.{driver}"
    command: list[str | Path] = [
        *("gcc", "-std=c11", "-O2", "-g0", *WARNINGS, "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"),
        *(f"-I{include}", f"-I{SOURCE}", f'-DDRIVER_VERSION="{driver}"', f"-DCUDA_VERSION={cuda}"),
        *(f"-Wl,-soname,{SONAME}", "-Wl,-z,defs,-z,relro,-z,now", *flags),
        *sorted(SOURCE.glob("*.c")),
        rest,
        "-o",
        library,
    ]
    builder.run(command)
    return library
