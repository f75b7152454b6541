"""How metrics reach Prometheus: it asks (scrape), or a Pushgateway is told (push)."""

import json
import os
import threading
from http.server import HTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import MetricsHandler, push_to_gateway

from runtime.place import Place
from runtime.telemetry.config import Push, Scrape
from runtime.telemetry.metrics import Metrics

ANSWER_LIMIT_S = 5.0


class Answers:
    """Answers scrapes over HTTP, one after the other: a slow or hostile client costs a scrape, never a thread more.

    Raises OSError where the port is taken.
    """

    def __init__(self, config: Scrape, place: Place, run: str, metrics: Metrics, targets: Path | None) -> None:
        class Handler(MetricsHandler):
            timeout = ANSWER_LIMIT_S
            registry = metrics.registry

        port = config.port + place.local_rank if config.port else 0
        self._server = HTTPServer((config.host, port), Handler)
        self.port = int(self._server.server_address[1])
        self._target = targets / f"rank-{place.rank:05}.json" if targets is not None else None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.5,), daemon=True)
        self._thread.start()
        if self._target is not None:
            self._tell_target(f"{_reachable(config.host, place)}:{self.port}", run)

    def take(self, _: list[Any]) -> None:
        """Nothing is handed over: who asks is answered."""

    def close(self) -> None:
        """Answers no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(ANSWER_LIMIT_S)
        if self._target is not None:
            self._target.unlink(missing_ok=True)

    def _tell_target(self, address: str, run: str) -> None:
        """Says where this rank is scraped, for Prometheus' file_sd_configs."""
        assert self._target is not None  # noqa: S101 (for the type checker)
        self._target.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._target.with_name(f".{self._target.name}.{os.getpid()}")
        fresh.write_text(json.dumps([{"targets": [address], "labels": {"job": "muster", "muster_run": run}}]))
        fresh.replace(self._target)


class Pushes:
    """Tells a Pushgateway every few seconds and at the end. Raises OSError where it does not answer."""

    def __init__(self, config: Push, place: Place, run: str, metrics: Metrics) -> None:
        self._config, self._registry = config, metrics.registry
        self._key = {"run": run, "rank": str(place.rank)}

    def take(self, _: list[Any]) -> None:
        """Pushes what the metrics are now."""
        push_to_gateway(
            self._config.url,
            job="muster",
            registry=self._registry,
            grouping_key=self._key,
            timeout=self._config.timeout_s,
        )

    def close(self) -> None:
        """Pushes once more: the last values stay with the gateway."""
        self.take([])


def _reachable(host: str, place: Place) -> str:
    return place.node if host in ("", "0.0.0.0", "::") else host  # noqa: S104
