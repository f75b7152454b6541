"""Real receivers on ports of their own: Prometheus, a Pushgateway, Loki, the OpenTelemetry collector."""

import json
from collections.abc import Iterator

import pytest
from real_receivers import Server, built, debian, free_port, run

from runtime.place import Place


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Prometheus, which scrapes what files in its folder's `targets` name, and the pushgateway that is named there."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "targets").mkdir()
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [
            {
                "job_name": "files",
                "honor_labels": True,
                "file_sd_configs": [{"files": [f"{folder}/targets/*.json"], "refresh_interval": "1s"}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    yield from run(
        folder,
        debian("prometheus", "prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:0",
    )


@pytest.fixture(scope="session")
def pushgateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Pushgateway."""
    program = debian("prometheus-pushgateway", "prometheus-pushgateway")
    yield from run(tmp_path_factory.mktemp("pushgateway"), program, "--web.listen-address=127.0.0.1:0")


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The OpenTelemetry collector, which writes each request that it gets as a line of JSON to `spans.json`."""
    folder = tmp_path_factory.mktemp("collector")
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"file": {"path": f"{folder}/spans.json", "flush_interval": "100ms"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
        },
    }
    (folder / "collector.yaml").write_text(json.dumps(config))
    yield from run(folder, built("collector"), f"{folder}/collector.yaml")


@pytest.fixture(scope="session")
def loki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Grafana Loki, with everything in its own folder."""
    folder = tmp_path_factory.mktemp("loki")
    http, grpc = free_port(), free_port()  # Loki calls itself by the port in its configuration, so that 0 will not do
    config = {
        "auth_enabled": False,
        "analytics": {"reporting_enabled": False},
        "server": {
            "http_listen_address": "127.0.0.1", "http_listen_port": http,
            "grpc_listen_address": "127.0.0.1", "grpc_listen_port": grpc, "log_level": "warn",
        },
        "common": {
            "path_prefix": str(folder), "replication_factor": 1, "instance_addr": "127.0.0.1",
            "ring": {"kvstore": {"store": "inmemory"}, "instance_addr": "127.0.0.1"},
            "storage": {"filesystem": {"chunks_directory": f"{folder}/chunks", "rules_directory": f"{folder}/rules"}},
        },
        "schema_config": {
            "configs": [
                {"from": "2024-01-01", "store": "tsdb", "object_store": "filesystem", "schema": "v13",
                 "index": {"prefix": "index_", "period": "24h"}}
            ]
        },
        "ingester": {"lifecycler": {"min_ready_duration": "0s"}},
    }  # fmt: skip
    (folder / "loki.yaml").write_text(json.dumps(config))
    yield from run(folder, built("loki"), f"-config.file={folder}/loki.yaml", port=http, ready="/ready")


@pytest.fixture
def place() -> Place:
    return Place(rank=0, world=1, node="gpu-0", attempt="job.0")
