"""Exit codes, the same for every command."""

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code says."""

    PASS = 0  # noqa: S105
    FAIL = 1
    USAGE = 2
    """Wrong usage or configuration: nothing was measured or changed."""
    ERROR = 3
    """Something could not be done or reached."""
    INCOMPLETE = 4
    """Not everything that should have been examined was."""
    CERTIFICATE = 5
    """A certificate is expired or invalid."""

    @property
    def words(self) -> str:
        """For people."""
        return {
            Exit.PASS: "pass",
            Exit.FAIL: "fail",
            Exit.USAGE: "usage or configuration",
            Exit.ERROR: "error or unreachable",
            Exit.INCOMPLETE: "incomplete coverage",
            Exit.CERTIFICATE: "expired or invalid certificate",
        }[self]
