//go:build tools

// Package prometheus imports the program to build, so that go.sum contains all of its dependencies.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
