"""Many names or numbers in few words, as schedulers write them."""

from collections.abc import Iterable


def fold(names: Iterable[str]) -> str:
    """`gpu-[0-3,7], control-0`."""
    groups: dict[str, list[int]] = {}
    rest = []
    for name in names:
        head, dash, tail = name.rpartition("-")
        if dash and tail.isascii() and tail.isdigit() and (tail == "0" or tail[0] != "0") and len(tail) < 9:
            groups.setdefault(head, []).append(int(tail))
        else:
            rest.append(name)
    return ", ".join([*(f"{head}-{_bracketed(numbers)}" for head, numbers in groups.items()), *rest])


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _bracketed(numbers: Iterable[int]) -> str:
    text = ranges(numbers)
    return text if text.isdecimal() else f"[{text}]"
