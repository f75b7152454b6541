"""Where Debian packages come from: the mirror and proxy of this machine's own apt, so that a site's are honoured."""

import subprocess
from dataclasses import dataclass

DEBIAN = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True)
class Mirror:
    """A source of one Debian release."""

    site: str
    lines: tuple[str, ...]
    """In the format of sources.list."""
    options: tuple[str, ...]
    """In the format of apt.conf."""


def mirror(suite: str) -> Mirror:
    """The mirror of a release, by this machine's apt configuration; Debian's own where that names none.

    Errors of apt count as naming none: a machine without apt's lists (or another distribution) has none to name.
    """
    return choose(
        suite,
        targets=_output(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(SITE)"]),
        proxies=_output(["apt-config", "dump", "--format", "%f=%v%n", "Acquire::http::Proxy", "Acquire::https::Proxy"]),
    )


def choose(suite: str, targets: str, proxies: str) -> Mirror:
    """Pure: `targets` is a line `origin|codename|site` for each index that apt knows, `proxies` lines `option=URL`."""
    sites = {
        codename: site
        for origin, codename, site in (line.split("|", 2) for line in targets.splitlines() if line.count("|") == 2)
        if origin == "Debian"
    }
    main = sites.get(suite, DEBIAN)
    signed = f"[signed-by={KEYRING}]"
    return Mirror(
        site=main,
        lines=(
            f"deb {signed} {main} {suite} main",
            f"deb {signed} {sites.get(f'{suite}-updates', main)} {suite}-updates main",
            f"deb {signed} {sites.get(f'{suite}-security', SECURITY)} {suite}-security main",
        ),
        options=tuple(
            f'{option} "{value}";'
            for option, _, value in (line.partition("=") for line in proxies.splitlines())
            if option and value and '"' not in value
        ),
    )


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
