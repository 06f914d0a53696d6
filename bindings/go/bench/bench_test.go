// Package bench compares the cost of a record with other libraries: `go test -bench .`.
package bench

import (
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/topdeck/topdeck/bindings/go"
)

// Values of a lognormal shape are not needed: the cost does not depend on the distribution, except
// for the cache lines of the buckets. These spread over 40 buckets.
var values = func() (values [1024]uint64) {
	state := uint64(1)
	for at := range values {
		state = state*6364136223846793005 + 1442695040888963407
		values[at] = 1_000_000 + state>>43
	}
	return
}()

func BenchmarkCounter(b *testing.B) {
	counter := topdeck.NewCounter(topdeck.Description{Name: "answered_total"})
	for b.Loop() {
		counter.Add(1)
	}
}

func BenchmarkHistogram(b *testing.B) {
	histogram := topdeck.NewHistogram(topdeck.Description{Name: "took", Unit: "ns"})
	for i := 0; b.Loop(); i++ {
		histogram.Record(values[i&1023])
	}
}

func BenchmarkHistogramParallel(b *testing.B) {
	histogram := topdeck.NewHistogram(topdeck.Description{Name: "took", Unit: "ns"})
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			histogram.Record(values[i&1023])
		}
	})
}

func BenchmarkTimer(b *testing.B) {
	histogram := topdeck.NewHistogram(topdeck.Description{Name: "timed", Unit: "ns"})
	for b.Loop() {
		histogram.Start().Stop()
	}
}

func BenchmarkInFlight(b *testing.B) {
	table := topdeck.NewInFlight(topdeck.Description{Name: "work"}, "device")
	sda := topdeck.NewTag("sda")
	for b.Loop() {
		operation := table.Begin(1, sda)
		operation.End()
	}
}

func BenchmarkHdrHistogram(b *testing.B) {
	histogram := hdrhistogram.New(1, 3_600_000_000_000, 3)
	for i := 0; b.Loop(); i++ {
		_ = histogram.RecordValue(int64(values[i&1023]))
	}
}

func BenchmarkPrometheusClassic(b *testing.B) {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took"})
	for i := 0; b.Loop(); i++ {
		histogram.Observe(float64(values[i&1023]) / 1e9)
	}
}

func BenchmarkPrometheusNative(b *testing.B) {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took",
		NativeHistogramBucketFactor: 1.1})
	for i := 0; b.Loop(); i++ {
		histogram.Observe(float64(values[i&1023]) / 1e9)
	}
}

func BenchmarkPrometheusNativeParallel(b *testing.B) {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took",
		NativeHistogramBucketFactor: 1.1})
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			histogram.Observe(float64(values[i&1023]) / 1e9)
		}
	})
}

func BenchmarkPrometheusCounter(b *testing.B) {
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "answered_total"})
	for b.Loop() {
		counter.Inc()
	}
}
