// Writes the requests and the scrape of this directory with Prometheus' own messages: prompb and writev2 of
// github.com/prometheus/prometheus v0.315.0, client_golang v1.24.1. It needs the modules that bench/peers/prometheus
// names:
//
//	cp testdata/decode/prometheus/make/main.go bench/peers/prometheus/make_requests.go
//	cd bench/peers/prometheus && go run make_requests.go ../../../testdata/decode/prometheus
package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

const at = 1_700_000_000_000

var stale = math.Float64frombits(value.StaleNaN)

func named(name string, pairs ...string) labels.Labels {
	return labels.FromStrings(append([]string{"__name__", name, "job", "api"}, pairs...)...)
}

func native() *histogram.Histogram {
	return &histogram.Histogram{
		Schema: 1, ZeroThreshold: 0.001, ZeroCount: 2, Count: 9, Sum: 18.4,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}},
		PositiveBuckets: []int64{1, 1, -1},
		NegativeSpans:   []histogram.Span{{Offset: -1, Length: 1}},
		NegativeBuckets: []int64{3},
	}
}

func custom() *histogram.Histogram {
	return &histogram.Histogram{
		Schema: histogram.CustomBucketsSchema, Count: 6, Sum: 1.5,
		CustomValues:    []float64{0.1, 0.5, 2.5},
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 4}},
		PositiveBuckets: []int64{1, 1, -1, 1},
	}
}

// A histogram of a series, as a change of the whole ones.
type sent struct {
	name string
	h    *histogram.Histogram
	fh   *histogram.FloatHistogram
}

func histograms() []sent {
	half := native().ToFloat(nil).Div(2)
	gauge := native()
	gauge.CounterResetHint = histogram.GaugeType
	return []sent{
		{"rpc_seconds", native(), nil},
		{"whole_seconds", nil, native().ToFloat(nil)},
		{"half_seconds", nil, half},
		{"custom_seconds", custom(), nil},
		{"held_seconds", gauge, nil},
		{"gone_seconds", &histogram.Histogram{Sum: stale}, nil},
	}
}

type number struct {
	labels labels.Labels
	value  float64
	kind   writev2.Metadata_MetricType
	unit   string
}

func numbers() []number {
	const (
		counter = writev2.Metadata_METRIC_TYPE_COUNTER
		gauge   = writev2.Metadata_METRIC_TYPE_GAUGE
		classic = writev2.Metadata_METRIC_TYPE_HISTOGRAM
		unknown = writev2.Metadata_METRIC_TYPE_UNSPECIFIED
	)
	return []number{
		{named("http_requests_total", "code", "200"), 1027, counter, ""},
		{named("ticks"), 7, counter, "seconds"},
		{named("queue_count"), 3, gauge, ""},
		{named("latency_seconds_bucket", "le", "0.5"), 4, classic, "seconds"},
		{named("latency_seconds_sum"), 1.25, classic, "seconds"},
		{named("up"), stale, unknown, ""},
	}
}

func v1() []byte {
	request := &prompb.WriteRequest{
		Metadata: []prompb.MetricMetadata{{Type: prompb.MetricMetadata_COUNTER, MetricFamilyName: "http_requests_total", Help: "All"}},
	}
	for _, n := range numbers() {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels:    prompb.FromLabels(n.labels, nil),
			Samples:   []prompb.Sample{{Value: n.value, Timestamp: at}, {Value: n.value + 1, Timestamp: at + 15_000}},
			Exemplars: []prompb.Exemplar{{Labels: prompb.FromLabels(labels.FromStrings("trace_id", "1"), nil), Value: 1, Timestamp: at}},
		})
	}
	for _, s := range histograms() {
		series := prompb.TimeSeries{Labels: prompb.FromLabels(named(s.name), nil)}
		if s.h != nil {
			series.Histograms = []prompb.Histogram{prompb.FromIntHistogram(at, s.h)}
		} else {
			series.Histograms = []prompb.Histogram{prompb.FromFloatHistogram(at, s.fh)}
		}
		request.Timeseries = append(request.Timeseries, series)
	}
	return must(request.Marshal())
}

func v2() []byte {
	symbols := writev2.NewSymbolTable()
	request := &writev2.Request{}
	for _, n := range numbers() {
		request.Timeseries = append(request.Timeseries, writev2.TimeSeries{
			LabelsRefs: symbols.SymbolizeLabels(n.labels, nil),
			Metadata:   writev2.Metadata{Type: n.kind, HelpRef: symbols.Symbolize("some help"), UnitRef: symbols.Symbolize(n.unit)},
			Samples: []writev2.Sample{
				{Value: n.value, Timestamp: at, StartTimestamp: at - 60_000},
				{Value: n.value + 1, Timestamp: at + 15_000},
			},
			Exemplars: []writev2.Exemplar{{LabelsRefs: symbols.SymbolizeLabels(labels.FromStrings("trace_id", "1"), nil), Value: 1, Timestamp: at}},
		})
	}
	for _, s := range histograms() {
		series := writev2.TimeSeries{
			LabelsRefs: symbols.SymbolizeLabels(named(s.name), nil),
			Metadata:   writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_HISTOGRAM},
		}
		var h writev2.Histogram
		if s.h != nil {
			h = writev2.FromIntHistogram(at-60_000, at, s.h)
		} else {
			h = writev2.FromFloatHistogram(at-60_000, at, s.fh)
		}
		series.Histograms = []writev2.Histogram{h}
		request.Timeseries = append(request.Timeseries, series)
	}
	request.Symbols = symbols.Symbols()
	return must(request.Marshal())
}

func scrape() []byte {
	created := timestamppb.New(time.UnixMilli(at - 60_000))
	registry := prometheus.NewRegistry()
	both := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "both_seconds", Help: "Classic and native", Buckets: []float64{0.1, 1},
		NativeHistogramBucketFactor: 1.1,
	})
	classic := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "classic_seconds", Help: "Classic", Buckets: []float64{0.1, 1},
	}, []string{"code"})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "answer_seconds", Objectives: map[float64]float64{0.5: 0.05, 1: 0}})
	registry.MustRegister(both, classic, summary)
	for _, x := range []float64{0.05, 0.5, 3} {
		both.Observe(x)
		summary.Observe(x)
		classic.WithLabelValues("200").(prometheus.ExemplarObserver).ObserveWithExemplar(x, prometheus.Labels{"trace_id": "1"})
	}
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Histogram != nil {
				m.Histogram.CreatedTimestamp = created
				for _, b := range m.Histogram.Bucket {
					if b.Exemplar != nil {
						b.Exemplar.Timestamp = created
					}
				}
			}
			if m.Summary != nil {
				m.Summary.CreatedTimestamp = created
			}
		}
	}
	label := []*dto.LabelPair{{Name: proto.String("job"), Value: proto.String("api")}}
	families = append(families,
		&dto.MetricFamily{Name: proto.String("sent_total"), Type: dto.MetricType_COUNTER.Enum(), Unit: proto.String("bytes"),
			Metric: []*dto.Metric{{Label: label, TimestampMs: proto.Int64(at), Counter: &dto.Counter{Value: proto.Float64(5), CreatedTimestamp: created,
				Exemplar: &dto.Exemplar{Label: label, Value: proto.Float64(1)}}}}},
		&dto.MetricFamily{Name: proto.String("temperature"), Type: dto.MetricType_GAUGE.Enum(),
			Metric: []*dto.Metric{{Label: label, Gauge: &dto.Gauge{Value: proto.Float64(-3.5)}}, {Gauge: &dto.Gauge{}}}},
		&dto.MetricFamily{Name: proto.String("odd"), Type: dto.MetricType_UNTYPED.Enum(),
			Metric: []*dto.Metric{{Untyped: &dto.Untyped{Value: proto.Float64(8)}}}},
		&dto.MetricFamily{Name: proto.String("held"), Type: dto.MetricType_GAUGE_HISTOGRAM.Enum(),
			Metric: []*dto.Metric{{Histogram: &dto.Histogram{SampleCountFloat: proto.Float64(3), SampleSum: proto.Float64(4), Schema: proto.Int32(0),
				ZeroThreshold: proto.Float64(0.5), PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(1), Length: proto.Uint32(1)}}, PositiveCount: []float64{3}}}}},
	)
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

func must(bytes []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return bytes
}

func main() {
	for name, content := range map[string][]byte{
		"write_v1.snappy": snappy.Encode(nil, v1()),
		"write_v2.snappy": snappy.Encode(nil, v2()),
		"scrape.pb":       scrape(),
	} {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), content, 0o644); err != nil {
			panic(err)
		}
	}
}
