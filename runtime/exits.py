"""Exit codes of a training job: what whoever started it should do next.

They keep clear of codes that mean something already: 1 and 2 (Python's own), 126 to 128 (shells), 128 + n (signals).
"""

from enum import IntEnum


class Exit(IntEnum):
    """The code that every rank of a job ends with."""

    DONE = 0
    """The work is done: nothing to start again."""
    RESUMABLE_STOP = 85
    """Asked to stop, and stopped with a verified checkpoint: start it again when there is room."""
    RESUMABLE_FAILURE = 86
    """Failed through something that may pass (a peer, the network, storage): start it again, elsewhere if it recurs."""
    FAILED = 87
    """Failed in a way that starting it again does not mend (the program, its configuration, a bad loss): look first."""
