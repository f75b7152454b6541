"""The telemetry of one rank: takes what the training thread tells and gives it to the receivers, each on its own lane.

Nothing here may stop or slow a step: telling is an append to a bounded queue; everything else (rendering, filtering,
files, networks, devices) is done on the lanes' threads.
"""

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from runtime.place import Place
from runtime.place import place as place_here
from runtime.telemetry.config import TelemetryConfig, Traces
from runtime.telemetry.digest import Digest, Measuring
from runtime.telemetry.goodput import Ledger
from runtime.telemetry.journal import Journal
from runtime.telemetry.lane import Lane, Receiver
from runtime.telemetry.log import Bridge, LogFile, console, json_line
from runtime.telemetry.loki import LokiPush
from runtime.telemetry.metrics import Metrics
from runtime.telemetry.overlap import Communication
from runtime.telemetry.record import FIELDS_LIMIT, LEVELS, Event, Step, Waits, level_of, plain
from runtime.telemetry.redact import Redactor
from runtime.telemetry.scrape import Answers, Pushes
from runtime.telemetry.steps import Phase, Stopwatch


class Telemetry:
    """Is a Tell: `telemetry("checkpoint.saved", step=5, seconds=1.2)`.

    `level` is debug, info, warning or error; where it is not given, the name's last word decides: what `failed` is an
    error.

    None of the methods raises, and none waits but `flush` and `close`. Made on the thread that trains.
    """

    def __init__(self, config: TelemetryConfig, place: Place | None = None) -> None:
        self.config = config
        self.place = place or place_here()
        self._watch = Stopwatch()
        self._step: int | None = None
        self._open = True
        self._redactor = Redactor(os.environ)
        self._events: list[Lane[Any]] = []
        self._steps: list[Lane[Any]] = []
        self._first: list[Lane[Any]] = []
        self._then: list[Lane[Any]] = []  # fed by the digest, which is among the first
        self._bridge: Bridge | None = None
        self._join()
        os.register_at_fork(after_in_child=_silent_in_child(self))
        atexit.register(self.close)  # an uncaught error is told, too

    def __call__(self, event: str, /, **fields: Any) -> None:
        try:
            if not self._open:
                return
            level = fields.pop("level", None)
            if level not in LEVELS:
                level = level_of(event)
            step = fields.pop("step", self._step)
            told = {name: plain(each) for name, each in list(fields.items())[:FIELDS_LIMIT]}
            record = Event(time.time_ns(), str(event)[:200], level, step if isinstance(step, int) else None, told)
            for lane in self._events:
                lane.put(record)
        except Exception:  # noqa: S110 (a step is worth more than its telemetry)
            pass

    def phase(self, name: str) -> Phase:
        """A context: the time spent in it is the part `name` of the step. Parts may lie in each other."""
        return self._watch.phase(name)

    def step_done(
        self,
        step: int,
        samples: int = 0,
        tokens: int = 0,
        loss: Any = None,
        grad_norm: Any = None,
        useful: bool = True,
        communication: Communication | None = None,
    ) -> Step | None:
        """Ends a step. `samples` and `tokens` are this rank's own; `loss` and `grad_norm` numbers or tensors of one.

        A tensor is read on another thread: a step does not wait for the device. `useful` is False for a step whose
        update was skipped. `communication` is what hides in a backward pass, where that was measured. Returns what was
        told, None where nothing was.
        """
        try:
            if not self._open:
                return None
            self._step = step
            record = self._watch.done(
                step,
                samples=samples,
                tokens=tokens,
                loss=_loose(loss),
                grad_norm=_loose(grad_norm),
                useful=useful,
                communication=communication,
            )
            if record is not None:
                for lane in self._steps:
                    lane.put(record)
            return record
        except Exception:
            return None

    def waited(self, waits: Waits) -> None:
        """What the ranks waited for the slowest; on rank 0."""
        if self._open:
            for lane in self._steps:
                lane.put(waits)

    @property
    def dropped(self) -> dict[str, int]:
        """How many events or steps each receiver did not get."""
        return {lane.name: lane.dropped for lane in self._lanes}

    def flush(self, limit_s: float = 5.0) -> bool:
        """Waits until all that was told is with its receivers, at most `limit_s`. False where it is not."""
        end = time.monotonic() + limit_s
        delivered = [lane.flush(max(0.0, end - time.monotonic())) for lane in self._lanes]
        return all(delivered)

    def close(self, limit_s: float = 5.0) -> None:
        """Delivers what waits and ends, within `limit_s`; what is not delivered by then is dropped."""
        if not self._open:
            return
        end = time.monotonic() + limit_s
        atexit.unregister(self.close)
        if self._bridge is not None:
            logging.getLogger().removeHandler(self._bridge)
        self._open = False
        for lanes in (self._first, self._then):
            for lane in lanes:
                lane.end()
            for lane in lanes:
                lane.join(end - time.monotonic())

    @property
    def _lanes(self) -> list[Lane[Any]]:
        return [*self._first, *self._then]

    def _join(self) -> None:
        """Opens a lane for each receiver that the configuration names."""
        config, place, run = self.config, self.place, self.config.run
        self.metrics = metrics = Metrics(place, run, config.worth, self._redactor)
        metrics.count_dropped(lambda: self.dropped)
        onward: list[Callable[[Step, bool], None]] = []
        if config.traces is not None:
            self._trace(config.traces, onward)
        if place.leads:
            self._draw(onward)
        self._hear(self._lane("digest", lambda: Digest(metrics, config.alarms, onward, self)), steps=True)
        if place.leads and config.folder is not None:
            path = config.folder / "goodput.jsonl"

            def worth(ledger: Ledger) -> None:
                cost = config.worth.cost_per_rank_hour
                metrics.goodput(ledger.goodput(time.time(), cost, config.worth.pause_costs))

            def keep() -> Journal:
                return Journal(path, place, worth, gpu_busy=lambda: metrics.gpu_busy)

            journal = self._lane("goodput", keep, beat=True, period_s=1.0)
            self._hear(journal, steps=True)
        if (lines := console(config.console, place, run, self._redactor)) is not None:
            self._hear(self._lane("console", lambda: lines))
        if config.folder is not None:
            file, log = config.folder / "logs" / f"rank-{place.rank:05}.jsonl", config.log
            self._hear(self._lane("log", lambda: LogFile(file, self._json, log.max_bytes, log.keep), tries=5))
        if (loki := config.loki) is not None:
            self._hear(self._lane("loki", lambda: LokiPush(loki, place, run, self._json), tries=5))
        if config.hardware_every_s:
            self._serve("hardware", lambda: Measuring(place.leads_node, metrics), config.hardware_every_s)
        if (scrape := config.scrape) is not None:
            targets = config.folder / "targets" if config.folder is not None else None
            self._serve("scrape", lambda: Answers(scrape, place, run, metrics, targets), 30.0)
        if (push := config.push) is not None:
            self._serve("push", lambda: Pushes(push, place, run, metrics), push.every_s)
        if config.capture_logging:
            self._bridge = Bridge(self)
            logging.getLogger().addHandler(self._bridge)

    def _trace(self, config: Traces, onward: list[Callable[[Step, bool], None]]) -> None:
        # Imported here and not on the lane: a child forked in the middle of an import would wait for it for ever.
        from runtime.telemetry.traces import Exporter, chosen

        place, run = self.place, self.config.run
        lane = self._lane("traces", lambda: Exporter(config, place, run, self._redactor), tries=3)
        self._then.append(lane)

        def choose(step: Step, strange: bool) -> None:
            if strange or chosen(run, place.attempt, step.number, config.share):
                lane.put(step)

        onward.append(choose)

    def _draw(self, onward: list[Callable[[Step, bool], None]]) -> None:
        from runtime.telemetry import sinks

        config, run, worth = self.config, self.config.run, self.config.worth

        def draw(name: str, make: Callable[[], sinks.Board]) -> None:
            lane = self._lane(name, lambda: sinks.ToBoard(make(), worth))
            self._then.append(lane)
            onward.append(lambda step, _: lane.put(step))

        if (folder := config.tensorboard) is not None:
            from tensorboard.summary import Writer  # type: ignore[import-untyped]

            draw("tensorboard", lambda: sinks.TensorBoard(folder, Writer))
        if (chart := config.wandb) is not None:
            import wandb

            draw("wandb", lambda: sinks.WeightsAndBiases(chart, run, config.folder, wandb))

    def _lane(self, name: str, make: Callable[[], Receiver[Any]], **more: Any) -> Lane[Any]:
        return Lane(name, make, limit=self.config.queue, changed=self._changed, **more)

    def _hear(self, lane: Lane[Any], steps: bool = False) -> None:
        self._first.append(lane)
        self._events.append(lane)
        if steps:
            self._steps.append(lane)

    def _serve(self, name: str, make: Callable[[], Receiver[Any]], period_s: float) -> None:
        """A lane on which nothing is put: its receiver works by itself, every period."""
        self._then.append(self._lane(name, make, beat=True, period_s=period_s))

    def _json(self, event: Event) -> str:
        return json_line(event, self.place, self.config.run, self._redactor)

    def _changed(self, lane: str, why: BaseException | None) -> None:
        """A receiver failed, or works again: told to all the others."""
        if why is None:
            self("telemetry.restored", receiver=lane)
        else:
            self("telemetry.lost", level="warning", receiver=lane, reason=f"{type(why).__name__}: {why}")


def _loose(value: Any) -> Any:
    """A tensor without the graph behind it, so that a queue does not keep activations alive."""
    try:
        detach = getattr(value, "detach", None)
        return value if detach is None else detach()
    except Exception:
        return None


def _silent_in_child(telemetry: Telemetry) -> Callable[[], None]:
    """A forked data-loader worker has none of the threads: there, nothing is told."""
    known = weakref.ref(telemetry)

    def silence() -> None:
        if (found := known()) is not None:
            found._open = False

    return silence
