"""Exit codes, the same for every command."""

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit status says."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    """Wrong use or wrong configuration."""
    ERROR = 3
    """Something broke or could not be reached, so nothing is known."""
    INCOMPLETE = 4
    """Not everything that had to be covered was."""
    INVALID = 5
    """A certificate is expired or not valid."""
