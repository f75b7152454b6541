//go:build tools

// Package language imports the Python language host: v3.60.0 is among the last releases in which it is part of the
// SDK's module; later ones are a module of their own, which the module proxy does not serve.
package language

import _ "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
