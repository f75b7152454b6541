"""What a run is told: one typed configuration, from Python or from a YAML file, with every mistake told at once."""

import argparse
import difflib
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from runtime.batch import BatchConfig
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.triggers import Triggers
from runtime.exits import Exit
from runtime.failures.loss import LossConfig
from runtime.failures.replicas import ReplicaConfig
from runtime.failures.restarts import RestartConfig
from runtime.failures.watchdog import WatchdogConfig
from runtime.stops.stop import StopConfig
from runtime.telemetry import TelemetryConfig
from spec.document import Document, Path_, parse, read, unwritten, written


class ConfigError(ValueError):
    """A configuration that cannot be used. Each line is `where: what is wrong · what to do`."""


class RunConfig(BaseModel):
    """The whole of it. `steps` and `epochs` say when the run is done, whichever comes first; without both it goes on
    until its data ends or it is stopped. `batch`, where the number of ranks may change: what a step is then.
    `control_s` is how long the ranks wait for each other at an agreement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    batch: BatchConfig | None = None
    control_s: float = Field(default=600.0, gt=0)
    checkpoints: CheckpointConfig
    save: Triggers = Triggers(every_s=600)
    stops: StopConfig = StopConfig()
    loss: LossConfig = LossConfig()
    restarts: RestartConfig = RestartConfig()
    replicas: ReplicaConfig = ReplicaConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    telemetry: TelemetryConfig = TelemetryConfig()


Told = RunConfig | Mapping[str, Any] | Path | str
"""A configuration as people give it: made, as a mapping, or the path of a YAML file."""


def load(told: Told, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration, with `changes` to fields by their dotted names, as {"checkpoints.folder": "/scratch/run"}.

    Raises ConfigError, which tells every mistake with file and line where it came from a file.
    """
    document, where = Document(), ""
    if isinstance(told, RunConfig):
        data = told.model_dump(exclude_unset=True)
    elif isinstance(told, Mapping):
        data = _copied(told)
    else:
        document, where = read(Path(told)), f"{told}:"
        if document.faults:
            advice = "see docs/training-tuning.md for an example"  # the reader's own advice is about cluster specs
            raise ConfigError(
                "\n".join(f"{where}{each.line}: {_field(each.field)}{each.what} · {advice}" for each in document.faults)
            )
        data = document.data
    for name, value in (changes or {}).items():
        _set(data, name, value)
    try:
        return RunConfig.model_validate(data)
    except ValidationError as invalid:
        lines = [(document.line(tuple(each["loc"])), *_words(each)) for each in invalid.errors(include_url=False)]
        told_lines = [
            f"{where}{line if where else ''}{': ' if where else ''}{field}: {what} · {advice}"
            for line, field, what, advice in sorted(lines)
        ]
        raise ConfigError("\n".join(told_lines)) from None


def told(argv: Sequence[str], default: Told) -> RunConfig:
    """The configuration that a command line names: `[CONFIG] [--set NAME=VALUE …]`, with VALUE as in YAML.

    A mistake is told on standard error, and the process leaves with Exit.FAILED: starting it again mends nothing.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("config", nargs="?", default=default, help="a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="as steps=100")
    asked = parser.parse_args(argv)
    changes = {}
    for each in asked.set:
        name, equals, value = each.partition("=")
        if not equals:
            parser.error(f"--set {each}: it is NAME=VALUE, as steps=100")
        parsed = parse(f"[{value}]", list)
        changes[name] = parsed.data[0] if not parsed.faults and len(parsed.data) == 1 else value
    try:
        return load(asked.config, changes)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(int(Exit.FAILED)) from None


def _field(name: str) -> str:
    return f"{name}: " if name else ""


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _set(data: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = (str(part) for part in unwritten(name))
    for group in groups:
        inner = data.setdefault(group, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name}: {group} is a single value · change {group} itself")
        data = inner
    data[last] = value


def _words(error: ErrorDetails) -> tuple[str, str, str]:
    """Field, what is wrong, what to do."""
    where: Path_ = tuple(error["loc"])
    field, given = written(where) or "the configuration", repr(error["input"])[:60]
    match error["type"]:
        case "extra_forbidden":
            known = sorted(_keys(where[:-1]))
            near = difflib.get_close_matches(str(where[-1]), known, n=1)
            keys = f"the keys here are {', '.join(known)}"
            return field, "no such key", f"did you mean {near[0]}?" if near else keys
        case "missing":
            return field, "missing", "add it"
        case "value_error":
            return field, str(error["ctx"]["error"]), "write another value"
    message = error["msg"][:1].lower() + error["msg"][1:]
    return field, f"{given}, which cannot be", message.replace("input should be", "it is")


def _keys(where: Path_) -> Iterator[str]:
    """The names of the fields of a group."""
    kind: Any = RunConfig
    for part in where:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = kind.model_fields[str(part)].annotation
            inner = [each for each in typing.get_args(kind) if isinstance(each, type) and issubclass(each, BaseModel)]
            kind = inner[0] if inner else kind
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from kind.model_fields
