//go:build tools

// Package cli imports the engine's command so that go.mod and go.sum pin everything it is built from.
package cli

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
