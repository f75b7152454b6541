"""Events pushed to Loki by its HTTP interface, where no agent collects the log files."""

import http.client
import json
import os
import urllib.request
from collections.abc import Callable
from typing import Any

from runtime.place import Place
from runtime.telemetry.config import Loki
from runtime.telemetry.record import Event


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to whoever it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


class LokiPush:
    """Sends events as one stream a level. Labels are the job, run, rank and level; all else is in the line.

    Raises OSError (urllib.error.URLError, HTTPError) where Loki does not take them.
    """

    def __init__(self, config: Loki, place: Place, run: str, render: Callable[[Event], str]) -> None:
        self._config, self._render = config, render
        self._labels = {"job": "muster", "run": run, "rank": str(place.rank)}
        self._headers = {"Content-Type": "application/json"}
        if tenant := os.environ.get("LOKI_TENANT"):
            self._headers["X-Scope-OrgID"] = tenant
        if token := os.environ.get("LOKI_TOKEN"):
            self._headers["Authorization"] = f"Bearer {token}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def take(self, batch: list[Event]) -> None:
        """Sends the events, in one request."""
        if not batch:
            return
        streams: dict[str, list[tuple[str, str]]] = {}
        for event in batch:
            streams.setdefault(event.level, []).append((str(event.at_ns), self._render(event)))
        told = [{"stream": self._labels | {"level": level}, "values": lines} for level, lines in streams.items()]
        body = json.dumps({"streams": told}).encode()
        request = urllib.request.Request(  # noqa: S310 (the configuration takes http and https alone)
            f"{self._config.url}/loki/api/v1/push", body, self._headers
        )
        try:
            with self._opener.open(request, timeout=self._config.timeout_s) as answer:
                answer.read(4096)
        except http.client.HTTPException as broken:
            raise ConnectionError(f"{self._config.url}: {type(broken).__name__}") from None

    def close(self) -> None:
        """Nothing to end: a connection is a request's."""
