//go:build tools

// Package loki imports Grafana Loki's command so that go.mod and go.sum pin everything it is built from.
package loki

import _ "github.com/grafana/loki/v3/cmd/loki"
