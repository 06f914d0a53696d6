// Writes the data directory `overlap`: blocks of a Prometheus that overlap.
//
// Run in bench/peers/prometheus, whose go.mod names the version:
//
//	go run ../../../testdata/tsdb/generate/main.go OUT
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// 2024-01-01T00:00:00Z in milliseconds, a multiple of the block range.
	start = int64(1704067200000)
	step  = int64(120000)
	hour  = int64(3600000)
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func series(name string) labels.Labels {
	return labels.FromStrings("__name__", name, "job", "shop", "instance", "shop-1:8080")
}

// Integer histogram after n steps; buckets of the second half are more.
func integer(n int64, hint histogram.CounterResetHint) *histogram.Histogram {
	h := &histogram.Histogram{
		CounterResetHint: hint, Schema: 3, ZeroThreshold: math.Ldexp(1, -128), ZeroCount: uint64(n),
		PositiveSpans:   []histogram.Span{{Offset: -7, Length: 2}, {Offset: 3, Length: 1}},
		PositiveBuckets: []int64{n, 2*n + 1, -n},
		NegativeSpans:   []histogram.Span{{Offset: 1, Length: 1}},
		NegativeBuckets: []int64{n / 2},
	}
	if n > 70 {
		h.PositiveSpans = append(h.PositiveSpans, histogram.Span{Offset: 4, Length: 2})
		h.PositiveBuckets = append(h.PositiveBuckets, -n, 1)
	}
	return total(h, 0.25)
}

// Integer histogram with custom bounds after n steps.
func custom(n int64) *histogram.Histogram {
	return total(&histogram.Histogram{
		Schema: histogram.CustomBucketsSchema, CustomValues: []float64{0.005, 0.25, 1, 123456.789},
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 2}},
		PositiveBuckets: []int64{n, 3, -1, n},
	}, 1.25)
}

func total(h *histogram.Histogram, mean float64) *histogram.Histogram {
	h.Count = h.ZeroCount
	for _, buckets := range [][]int64{h.PositiveBuckets, h.NegativeBuckets} {
		count := int64(0)
		for _, delta := range buckets {
			count += delta
			h.Count += uint64(count)
		}
	}
	h.Sum = mean * float64(h.Count)
	return h
}

func main() {
	out := os.Args[1]
	dir, err := os.MkdirTemp("", "tsdb")
	check(err)
	defer os.RemoveAll(dir)
	options := tsdb.DefaultOptions()
	options.MinBlockDuration, options.MaxBlockDuration = 2*hour, 2*hour
	options.OutOfOrderTimeWindow = 24 * hour
	options.RetentionDuration, options.EnableOverlappingCompaction = 0, false
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := tsdb.Open(dir, quiet, nil, options, nil)
	check(err)
	db.DisableCompactions()
	ctx := context.Background()

	// Five hours in order.
	for n := int64(0); n*step < 5*hour; n++ {
		write(db, start+n*step, n)
	}
	db.EnableCompactions()
	check(db.Compact(ctx))
	// Between samples of the second hour, and series that have no others.
	for n := int64(30); n < 60; n++ {
		a, at := db.Appender(ctx), start+n*step+step/2
		_, err := a.Append(0, series("jobs_total"), at, float64(1000*n+500))
		check(err)
		_, err = a.AppendHistogram(0, series("latency_seconds"), at, integer(n, histogram.UnknownCounterReset), nil)
		check(err)
		_, err = a.AppendHistogram(0, series("late_seconds"), at, nil, custom(n).ToFloat(nil))
		check(err)
		_, err = a.Append(0, series("late_depth"), at, float64(n)/4)
		check(err)
		check(a.Commit())
	}
	check(db.CompactOOOHead(ctx))
	check(db.Delete(ctx, start+hour/2, start+hour, labels.MustNewMatcher(labels.MatchEqual, "__name__", "queue_depth")))
	check(db.Snapshot(out, true))
	check(db.Close())

	// The same samples again from 1 h to 3 h, as a backfill would write them.
	w, err := tsdb.NewBlockWriter(quiet, out, 24*hour)
	check(err)
	for n := hour / step; n*step < 3*hour; n++ {
		a, at := w.Appender(ctx), start+n*step
		_, err := a.Append(0, series("jobs_total"), at, float64(1000*n))
		check(err)
		_, err = a.AppendHistogram(0, series("latency_seconds"), at, integer(n, histogram.UnknownCounterReset), nil)
		check(err)
		_, err = a.AppendHistogram(0, series("gauge_seconds"), at, integer(200-n, histogram.GaugeType), nil)
		check(err)
		check(a.Commit())
	}
	_, err = w.Flush(ctx)
	check(err)
	check(w.Close())
	found, err := filepath.Glob(filepath.Join(out, "*", "meta.json"))
	check(err)
	fmt.Println(len(found), "blocks, to", start+5*hour)
}

func write(db *tsdb.DB, at, n int64) {
	a := db.Appender(context.Background())
	number := func(name string, v float64) {
		_, err := a.Append(0, series(name), at, v)
		check(err)
	}
	whole := func(name string, h *histogram.Histogram) {
		_, err := a.AppendHistogram(0, series(name), at, h, nil)
		check(err)
	}
	float := func(name string, h *histogram.FloatHistogram) {
		_, err := a.AppendHistogram(0, series(name), at, nil, h)
		check(err)
	}
	number("jobs_total", float64(1000*n))
	number("queue_depth", math.Sin(float64(n)))
	whole("latency_seconds", integer(n, histogram.UnknownCounterReset))
	whole("gauge_seconds", integer(200-n, histogram.GaugeType))
	whole("converted_seconds", custom(n))
	float("float_seconds", integer(n, histogram.UnknownCounterReset).ToFloat(nil))
	float("float_converted_seconds", custom(n).ToFloat(nil))
	// A counter that starts anew, and a target that goes away.
	whole("restarted_seconds", integer(n%50, histogram.UnknownCounterReset))
	if n < 80 {
		whole("gone_seconds", integer(n, histogram.UnknownCounterReset))
	} else if n == 80 {
		whole("gone_seconds", &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)})
	}
	if n%10 == 0 {
		half := integer(n, histogram.UnknownCounterReset).ToFloat(nil)
		half.Count += 0.5
		half.ZeroCount += 0.5
		float("fractional_seconds", half)
	}
	check(a.Commit())
}
