//go:build tools

// Package victoriametrics pins the version of VictoriaMetrics that the benchmark builds.
package victoriametrics

import _ "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
