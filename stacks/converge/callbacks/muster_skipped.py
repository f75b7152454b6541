"""Ansible loads this into a converge run: why tasks were skipped, which ansible-runner's own events leave out."""

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase  # type: ignore[import-untyped]

TO = "MUSTER_SKIPPED"
"""The environment variable that names the file: one JSON document a line."""

META = ("meta", "ansible.builtin.meta")
"""The module of tasks that steer the run and look at nothing on a node."""

REASONS = ("msg", "skip_reason", "skipped_reason", "false_condition")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Writes a line for each task, and each item of a loop, that did not run on a host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "muster_skipped"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task, or a whole loop, whose items were told one by one."""
        if "results" not in result._result:
            self._tell(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """One item of a loop."""
        self._tell(result)

    def _tell(self, result: Any) -> None:
        task = result._task
        if hasattr(task, "listen"):  # a handler: what notified it is a change, and told
            return
        if task.action in META:
            return
        said = {
            "host": result._host.get_name(),
            "task": task.name or task.action,
            "role": task._role.get_name() if task._role else "",
            "res": {key: result._result[key] for key in REASONS if key in result._result},
        }
        with open(os.environ[TO], "a") as lines:  # noqa: PTH123 - this runs in Ansible's process, once a skipped task
            lines.write(json.dumps(said, default=str) + "\n")
