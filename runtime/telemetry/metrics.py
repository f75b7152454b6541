"""A rank's metrics, for Prometheus. The values of every label come from a bounded set."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily

from runtime.place import Place
from runtime.telemetry.alarms import Alarm
from runtime.telemetry.config import Worth
from runtime.telemetry.goodput import Goodput
from runtime.telemetry.hardware import Reading
from runtime.telemetry.record import Event, Step, Waits
from runtime.telemetry.redact import Redactor
from runtime.telemetry.steps import PHASES

OTHER = "other"
STEP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CHECKPOINT_BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Bounded:
    """The first `limit` names are kept, without secrets in them; whatever comes after is `other`."""

    def __init__(self, limit: int, known: Iterable[str], redactor: Redactor) -> None:
        self._limit, self._redactor = limit, redactor
        self._known = set(known)

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        name = self._redactor.text(name[:200])
        if name in self._known:
            return name
        if len(self._known) < self._limit and name.isascii() and len(name) <= 100:
            self._known.add(name)
            return name
        return OTHER


class Metrics:
    """All metrics of one rank, in a registry of their own, labelled with run, rank and node."""

    def __init__(self, place: Place, run: str, worth: Worth, redactor: Redactor | None = None) -> None:
        self.registry = CollectorRegistry()
        self.gpu_busy: float | None = None
        """Mean over the node's GPUs at the last reading; None where that is not known."""
        self._place, self._worth = place, worth
        self._who = {"run": run, "rank": str(place.rank), "node": place.node}
        redactor = redactor or Redactor()
        self._phases, self._events = Bounded(len(PHASES) + 16, PHASES, redactor), Bounded(128, (), redactor)
        self._checkpoint_kinds = Bounded(10, ("copied", "written", "saved", "restored", "failed"), redactor)
        self._made: dict[str, Any] = {}
        self._before: dict[tuple[str, ...], float] = {}
        self._kinds = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}

        self._info = self._metric("gauge", "run_info", "1, with what differs between attempts", "attempt", "world")
        self._info(attempt=place.attempt, world=str(place.world)).set(1)

    def step(self, step: Step) -> None:
        """Takes a step in."""
        seconds = step.seconds
        self._one("histogram", "step_seconds", "Time of a step", buckets=STEP_BUCKETS_S).observe(seconds)
        self._one("gauge", "step_last_seconds", "Time of the latest step").set(seconds)
        self._one("gauge", "step", "Number of the latest step").set(step.number)
        parts = self._metric("counter", "step_part_seconds", "Time of all steps by part", "part")
        latest = self._metric("gauge", "step_part_last_seconds", "Time of the latest step by part", "part")
        told = dict.fromkeys((*PHASES, "rest"), 0.0)
        for part, spent in step.parts.items():
            label = self._phases(part)
            told[label] = told.get(label, 0.0) + spent / 1e9
        told["rest"] = max(0.0, seconds - sum(step.parts.values()) / 1e9)
        for part, spent_s in told.items():
            latest(part=part).set(spent_s)
            if spent_s:
                parts(part=part).inc(spent_s)
        self._counted("samples", step.samples, seconds)
        self._counted("tokens", step.tokens, seconds)
        for name, each in (("loss", step.loss), ("grad_norm", step.grad_norm)):
            if each is not None:
                self._one("gauge", name, f"The latest {name.replace('_', ' ')}").set(each)
        if (found := step.communication) is not None:
            about = "Communication of a backward pass, first bucket begun to last bucket ended, as sampled"
            self._one("gauge", "backward_communication_seconds", about).set(found.seconds)
            about = "What of it lay after the last gradient was computed"
            self._one("gauge", "backward_communication_exposed_seconds", about).set(found.exposed_s)
            if seconds > 0:
                about = "What of it lay after the last gradient was computed, over the time of a step"
                # torch measured an earlier pass than this step's, whose step may have been longer.
                ratio = min(1.0, found.exposed_s / seconds)
                self._one("gauge", "backward_communication_exposed_ratio", about).set(ratio)
        if (share := mfu(step, self._worth)) is not None:
            self._one("gauge", "mfu_ratio", "Model FLOP/s of the latest step over the device's peak").set(share)

    def event(self, event: Event) -> None:
        """Takes an event in: counted by name, and the numbers that checkpoints tell."""
        count = self._metric("counter", "events", "Events by name and level", "event", "level")
        count(event=self._events(event.name), level=event.level).inc()
        if event.name.startswith("checkpoint."):
            kind = self._checkpoint_kinds(event.name.removeprefix("checkpoint."))
            self._number(event, "bytes", "gauge", "checkpoint_bytes", "Size of the latest checkpoint", kind)
            self._number(
                event,
                "seconds",
                "histogram",
                "checkpoint_seconds",
                "Time of checkpoints by what was done: training stood still while one was copied",
                kind,
            )

    def reading(self, reading: Reading) -> None:
        """Takes a figure of the hardware in."""
        if reading.total:
            bound = self._metric("counter", reading.name, reading.about, *reading.labels)(**reading.labels)
            before = self._before.get((reading.name, *reading.labels.values()), 0.0)
            # A counter that fell was reset with its driver: it counts on from zero.
            bound.inc(reading.value - before if reading.value >= before else reading.value)
            self._before[(reading.name, *reading.labels.values())] = reading.value
        else:
            self._metric("gauge", reading.name, reading.about, *reading.labels)(**reading.labels).set(reading.value)

    def goodput(self, sum_: Goodput) -> None:
        """Says what the run was worth so far."""
        for name, about, value in (
            ("goodput_ratio", "Useful time over all time since the run's first start", sum_.ratio),
            ("goodput_useful_steps", "Steps in the run's history", sum_.useful_steps),
            ("goodput_lost_steps", "Steps that were done and undone", sum_.lost_steps),
            ("goodput_useful_seconds", "Time of the steps in the run's history", sum_.useful_s),
            ("goodput_all_seconds", "Time since the run's first start", sum_.all_s),
            ("goodput_paused_seconds", "Time between attempts", sum_.paused_s),
            ("goodput_starts", "Attempts", sum_.starts),
            ("goodput_cost", "What the run cost so far", sum_.cost),
            ("goodput_cost_per_useful_step", "Cost of one useful step", sum_.cost_per_useful_step),
        ):
            self._one("gauge", name, about).set(value)

    def waits(self, waits: Waits) -> None:
        """Takes the ranks' waits for the slowest in; on rank 0."""
        about = "Time of ranks in steps, waiting for the slowest, mean over ranks"
        self._one("counter", "straggler_seconds", about).inc(waits.waited_s)
        about = "What of the latest steps looked at it was"
        self._one("gauge", "straggler_ratio", about).set(waits.share)
        self._one("gauge", "straggler_rank", "The slowest rank of these steps").set(waits.rank)

    def alarm(self, alarm: Alarm) -> None:
        """Says whether a signal is out of its history."""
        about = "1 while a signal is out of its own history"
        self._metric("gauge", "alarm", about, "signal")(signal=alarm.signal).set(int(alarm.rings))

    def count_dropped(self, dropped: Callable[[], Mapping[str, int]]) -> None:
        """What receivers did not get, asked for at each scrape."""

        class Dropped:
            def collect(_) -> Iterator[Any]:  # noqa: N805
                about = "Events and steps that a receiver did not get"
                family = CounterMetricFamily("muster_telemetry_dropped", about, labels=[*self._who, "receiver"])
                for receiver, count in dropped().items():
                    family.add_metric([*self._who.values(), receiver], count)
                yield family

        self.registry.register(Dropped())

    def _number(self, event: Event, field: str, kind: str, metric: str, about: str, label: str) -> None:
        value = event.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if kind == "gauge":
            self._metric("gauge", metric, about, "kind")(kind=label).set(value)
        else:
            self._metric("histogram", metric, about, "kind", buckets=CHECKPOINT_BUCKETS_S)(kind=label).observe(value)

    def _counted(self, what: str, count: int, seconds: float) -> None:
        if count:
            self._one("counter", what, f"{what.capitalize()} of this rank").inc(count)
            if seconds > 0:
                about = f"{what.capitalize()} per second of this rank's latest step"
                self._one("gauge", f"{what}_per_second", about).set(count / seconds)

    def _one(self, kind: str, name: str, about: str, **more: Any) -> Any:
        return self._metric(kind, name, about, **more)()

    def _metric(self, kind: str, name: str, about: str, *labels: str, **more: Any) -> Any:
        """A metric by its name, made when it is first told, as a function from its labels to the thing that counts."""
        made = self._made.get(name)
        if made is None:
            whole = self._kinds[kind](f"muster_{name}", about, [*self._who, *labels], registry=self.registry, **more)
            bound: dict[tuple[str, ...], Any] = {}

            def made(**values: str) -> Any:
                key = tuple(values.values())
                if key not in bound:
                    bound[key] = whole.labels(**self._who, **values)
                return bound[key]

            self._made[name] = made
        return made


def mfu(step: Step, worth: Worth) -> float | None:
    """Model FLOP/s over the device's peak, of one rank's step. None where a figure for that is missing."""
    flops = step.tokens * (worth.flops_per_token or 0.0) or step.samples * (worth.flops_per_sample or 0.0)
    if not flops or not worth.peak_flops or step.seconds <= 0:
        return None
    return flops / step.seconds / worth.peak_flops
