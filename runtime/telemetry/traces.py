"""Steps as OpenTelemetry traces: one trace a step, over all ranks.

No rank tells another anything: trace and span ids are hashes of run, attempt, step and rank, and so is the choice of
the steps that are exported. Rank 0 sends the root; every rank sends its own span under it, and its phases under that.
"""

import hashlib
import logging
import struct
from collections.abc import Iterable
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from runtime.place import Place
from runtime.telemetry.config import Traces
from runtime.telemetry.record import Step
from runtime.telemetry.redact import Redactor


def trace_id(run: str, attempt: str, step: int) -> int:
    """The id of a step's trace: 128 bits, the same on all ranks, another in each attempt."""
    return _number(16, "trace", run, attempt, str(step))


def span_id(run: str, attempt: str, step: int, *inside: str | int) -> int:
    """The id of a span: 64 bits. `inside` names it within the step; nothing is the root."""
    return _number(8, "span", run, attempt, str(step), *map(str, inside))


def chosen(run: str, attempt: str, step: int, share: float) -> bool:
    """Whether a step is among the `share` that is exported: the same answer on all ranks."""
    return _number(8, "choice", run, attempt, str(step)) < share * 2.0**64


def spans(step: Step, place: Place, run: str) -> Iterable[tuple[str, int, int | None, int, int, dict[str, Any]]]:
    """The spans that one rank sends of a step: name, id, id of the one around it, start and end in ns, attributes."""
    root = span_id(run, place.attempt, step.number)
    own = span_id(run, place.attempt, step.number, place.rank)
    about = {"step": step.number, "rank": place.rank, "node": place.node}
    if place.leads:
        yield (
            f"step {step.number}",
            root,
            None,
            step.start_ns,
            step.end_ns,
            {"run": run, "attempt": place.attempt, "step": step.number, "world": place.world},
        )
    values = {"samples": step.samples, "tokens": step.tokens, "loss": step.loss, "grad_norm": step.grad_norm}
    told = {name: each for name, each in values.items() if each}
    yield f"rank {place.rank}", own, root, step.start_ns, step.end_ns, {**about, **told}
    ids = [span_id(run, place.attempt, step.number, place.rank, index) for index in range(len(step.spans))]
    for index, span in enumerate(step.spans):
        around = ids[span.inside] if span.inside >= 0 else own
        yield span.name, ids[index], around, span.start_ns, span.end_ns, about


class Exporter:
    """Sends steps to an OTLP receiver over gRPC. Raises ConnectionError where it did not take them in time."""

    def __init__(self, config: Traces, place: Place, run: str, redactor: Redactor) -> None:
        # The lane tells once when the receiver is lost; the exporter would tell it each time.
        logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").setLevel(logging.CRITICAL)
        self._place, self._run, self._redactor, self._endpoint = place, run, redactor, config.endpoint
        self._exporter = OTLPSpanExporter(
            endpoint=config.endpoint, insecure=config.endpoint.startswith("http://"), timeout=config.timeout_s
        )
        self._resource = Resource(
            {
                "service.name": "muster",
                "service.instance.id": f"{run}/{place.attempt}/{place.rank}",
                "host.name": place.node,
                "muster.run": run,
                "muster.attempt": place.attempt,
                "muster.rank": place.rank,
            }
        )

    def take(self, batch: list[Step]) -> None:
        """Sends the steps."""
        ready = [each for step in batch for each in self._readable(step)]
        if ready and self._exporter.export(ready) is not SpanExportResult.SUCCESS:
            raise ConnectionError(f"{self._endpoint} took no spans")

    def close(self) -> None:
        """Ends the connection."""
        self._exporter.shutdown()

    def _readable(self, step: Step) -> Iterable[ReadableSpan]:
        trace = trace_id(self._run, self._place.attempt, step.number)
        for name, own, around, start, end, attributes in spans(step, self._place, self._run):
            yield ReadableSpan(
                name=self._redactor.text(name),
                context=SpanContext(trace, own, False, TraceFlags(TraceFlags.SAMPLED)),
                parent=None if around is None else SpanContext(trace, around, True, TraceFlags(TraceFlags.SAMPLED)),
                resource=self._resource,
                attributes=self._redactor.fields(attributes),
                start_time=start,
                end_time=end,
            )


def _number(size: int, *parts: str) -> int:
    """A hash of the parts as a number of `size` bytes, never 0, which OpenTelemetry takes for no id."""
    packed = b"".join(struct.pack(">I", len(raw)) + raw for raw in (part.encode() for part in parts))
    return int.from_bytes(hashlib.blake2b(packed, digest_size=size).digest(), "big") or 1
