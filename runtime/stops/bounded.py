"""A call that may hang, with a time limit."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class HungError(Exception):
    """The call did not come back in time. Its thread is left behind, and goes with the process."""


class Bounded(Generic[T]):
    """A call under way in a thread of its own, which does not keep the process alive."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._name = name
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, args=(call,), name=name, daemon=True).start()

    def wait(self, limit_s: float) -> T:
        """What the call returned. Raises what it raised, or HungError after the limit."""
        if not self._done.wait(max(limit_s, 0.0)):
            raise HungError(f"{self._name} did not come back within {limit_s:.1f} s")
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._result.append(call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()


def bounded(call: Callable[[], T], limit_s: float, name: str) -> T:
    """Calls it. Raises what it raises, or HungError after `limit_s` seconds."""
    return Bounded(call, name).wait(limit_s)
