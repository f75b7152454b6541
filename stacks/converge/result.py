"""From Ansible's events to what a run did. Pure; events carry text from nodes, so all of it is bounded."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

TEXT = 2000
"""Characters of a message or difference that are kept."""

NOTES = 500
"""Notes of one kind that are kept of a run; how many there were is counted."""

JsonMap = Mapping[str, Any]


class Note(BaseModel):
    """What a task said on a host."""

    model_config = ConfigDict(frozen=True)

    host: str
    task: str
    role: str = ""
    text: str = ""


class Host(BaseModel):
    """How many tasks came out how on one host."""

    model_config = ConfigDict(frozen=True)

    name: str
    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    ignored: int = 0
    rescued: int = 0

    @property
    def holds(self) -> bool:
        """Whether the run reached the host and did all of it. A host where nothing ran holds nothing."""
        return self.ok > 0 and not self.failed and not self.unreachable


class Converged(BaseModel):
    """One run. In check mode nothing was changed, and `changes` is what would have been."""

    model_config = ConfigDict(frozen=True)

    check: bool
    hosts: tuple[Host, ...]
    changes: tuple[Note, ...] = ()
    failures: tuple[Note, ...] = ()
    unreachable: tuple[Note, ...] = ()
    unknown: tuple[Note, ...] = ()
    """Tasks that check mode cannot tell about: never a sign that a host is as declared."""
    changed_tasks: int = 0
    took_s: float = 0

    @property
    def holds(self) -> bool:
        """Whether every host was reached and nothing failed."""
        return bool(self.hosts) and all(host.holds for host in self.hosts)

    def summary(self) -> str:
        """One line for people."""
        wrong = [host.name for host in self.hosts if host.failed]
        away = [host.name for host in self.hosts if host.unreachable]
        parts = [f"{len(self.hosts)} hosts", f"{self.changed_tasks} {'would change' if self.check else 'changed'}"]
        parts += [f"failed on {', '.join(wrong)}"] if wrong else []
        parts += [f"unreachable: {', '.join(away)}"] if away else []
        return ", ".join(parts)


class Recorder:
    """Collects events as they come; `progress` is the line to show for one, or none."""

    def __init__(self) -> None:
        self.changes: list[Note] = []
        self.failures: list[Note] = []
        self.unreachable: list[Note] = []
        self.unknown: list[Note] = []
        self.changed_tasks = 0
        self.stats: JsonMap | None = None
        self.problems: list[str] = []
        self._items: dict[tuple[Any, Any], str] = {}

    def progress(self, event: JsonMap) -> tuple[str, bool] | None:
        """Takes one event in. The line for people, if any, and whether it is worth keeping."""
        data = event.get("event_data") or {}
        match event.get("event"):
            case "playbook_on_play_start":  # one of a few: worth a line also where nobody watches
                return str(data.get("name") or data.get("play") or "")[:200], True
            case "playbook_on_task_start" | "playbook_on_handler_task_start":
                return _title(data), False
            case "playbook_on_stats":
                self.stats = data
            case "runner_on_ok" | "runner_item_on_ok":
                self._ok(data, item=event["event"].startswith("runner_item"))
            case "runner_on_failed" | "runner_item_on_failed":
                return self._failed(data, item=event["event"].startswith("runner_item"))
            case "runner_on_unreachable":
                note = _note(data, _said(data))
                _keep(self.unreachable, note)
                return f"{note.host} is unreachable: {note.text}", True
            case "error" | "deprecated" | "warning" | "verbose":
                text = str(event.get("stdout", ""))
                if event["event"] == "error" or "ERROR" in text:
                    _keep(self.problems, text[-TEXT:])
        return None

    def _ok(self, data: JsonMap, item: bool) -> None:
        result = data.get("res") or {}
        if result.get("changed") and not item:
            self.changed_tasks += 1
            _keep(self.changes, _note(data, _difference(result) or _said(data)))

    def _failed(self, data: JsonMap, item: bool) -> tuple[str, bool] | None:
        about = (data.get("host"), data.get("task"))
        if item:
            self._items[about] = _said(data)
        if data.get("ignore_errors") or item:
            return None
        # Of a loop the task itself only says that it is over.
        note = _note(data, self._items.pop(about, "") or _said(data))
        _keep(self.failures, note)
        return f"{note.host} failed at {note.role} : {note.task}: {note.text}", True

    def skipped(self, data: JsonMap) -> None:
        """Takes in a line of `callbacks/muster_skipped.py`: a task, or one item of its loop, that did not run.

        A condition that is false and a loop over nothing are answers. Any other reason means that nobody looked.
        """
        result = data.get("res") or {}
        if "false_condition" in result or "skipped_reason" in result:
            return
        if result:  # none: the task is `no_log`, and Ansible hides the reason too
            note = _note(data, _said(data))
            if note not in self.unknown:  # a loop's items say the same
                _keep(self.unknown, note)

    def converged(self, expected: Iterable[str], check: bool, took_s: float) -> Converged:
        """The run's result. Raises ValueError where it cannot be known: no statistics, no hosts, or hosts missing."""
        if self.stats is None:
            raise ValueError(
                f"Ansible ended without a summary: {'; '.join(self.problems)[-TEXT:] or 'it said nothing'}"
            )
        counts = {field: self.stats.get(key) or {} for key, field in _FIELDS.items()}
        seen = set().union(*(each for each in counts.values()))
        wanted = set(expected)
        if not wanted or not seen:
            raise ValueError("no host was converged: that is an error, not a success")
        if missing := wanted - seen:
            raise ValueError(f"never reached: {', '.join(sorted(missing))}")
        hosts = tuple(
            Host(name=name, **{field: int(each.get(name, 0)) for field, each in counts.items()})
            for name in sorted(wanted)
        )
        return Converged(
            check=check,
            hosts=hosts,
            changes=tuple(self.changes),
            failures=tuple(self.failures),
            unreachable=tuple(self.unreachable),
            unknown=tuple(self.unknown),
            changed_tasks=self.changed_tasks,
            took_s=round(took_s, 1),
        )


_FIELDS = {
    "ok": "ok",
    "changed": "changed",
    "failures": "failed",
    "dark": "unreachable",
    "skipped": "skipped",
    "ignored": "ignored",
    "rescued": "rescued",
}


def _keep(notes: list[Any], note: Any) -> None:
    if len(notes) < NOTES:
        notes.append(note)


def _title(data: JsonMap) -> str:
    role, task = str(data.get("role") or ""), str(data.get("task") or data.get("name") or "")
    return (f"{role} : {task}" if role else task)[:200]


def _note(data: JsonMap, text: str) -> Note:
    return Note(
        host=str(data.get("host", ""))[:200],
        task=str(data.get("task", ""))[:200],
        role=str(data.get("role") or "")[:100],
        text=text[:TEXT],
    )


def _said(data: JsonMap) -> str:
    """What a task said, shortest first. Ansible hides the result itself where a task is `no_log`."""
    result = data.get("res") or {}
    items = [each for each in result.get("results") or [] if isinstance(each, dict) and each.get("failed")]
    for each in [*items[:3], result]:
        for key in ("msg", "stderr", "stdout", "module_stderr", "exception"):
            if said := each.get(key):
                return _bounded(said)
    return ""


def _difference(result: JsonMap) -> str:
    found = result.get("diff") or [each.get("diff") for each in result.get("results") or [] if isinstance(each, dict)]
    parts = found if isinstance(found, list) else [found]
    texts = []
    for each in parts[:10]:
        if isinstance(each, dict):
            name = each.get("after_header") or each.get("before_header") or ""
            before, after = _bounded(each.get("before", "")), _bounded(each.get("after", ""))
            texts.append(each.get("prepared") or f"{name}\n- {before}\n+ {after}".strip() if before or after else name)
    return "\n".join(str(text)[:TEXT] for text in texts if text)[:TEXT]


def _bounded(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.strip()[:TEXT]
