package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// otlp sends in three exports, for each temporality and with the defaults of the SDK: exponential histograms, explicit
// ones, counters, gauges.
func otlp(address string) error {
	if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address); err != nil {
		return err
	}
	in := func(temporality metricdata.Temporality) []otlpmetricgrpc.Option {
		return []otlpmetricgrpc.Option{
			otlpmetricgrpc.WithTemporalitySelector(func(kind sdk.InstrumentKind) metricdata.Temporality {
				if kind == sdk.InstrumentKindUpDownCounter {
					return metricdata.CumulativeTemporality
				}
				return temporality
			})}
	}
	exponential := []sdk.Option{sdk.WithView(sdk.NewView(sdk.Instrument{Name: "go.exponential.*"}, sdk.Stream{
		Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20},
	}))}
	if err := otlpIn("cumulative", in(metricdata.CumulativeTemporality), exponential); err != nil {
		return err
	}
	if err := otlpIn("delta", in(metricdata.DeltaTemporality), exponential); err != nil {
		return err
	}
	return otlpIn("defaults", nil, nil)
}

func otlpIn(name string, options []otlpmetricgrpc.Option, views []sdk.Option) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	exporter, err := otlpmetricgrpc.New(ctx, options...)
	if err != nil {
		return err
	}
	provider := sdk.NewMeterProvider(append(views, sdk.WithReader(sdk.NewPeriodicReader(exporter)))...)
	meter := provider.Meter("topdeck/clients")
	with := metric.WithAttributes(attribute.String("route", "/cart"))

	buckets, err := meter.Float64Histogram("go.exponential."+name, metric.WithUnit("s"))
	if err != nil {
		return err
	}
	explicit, err := meter.Float64Histogram("go.explicit."+name, metric.WithUnit("s"))
	if err != nil {
		return err
	}
	counter, err := meter.Int64Counter("go.counter." + name)
	if err != nil {
		return err
	}
	upDown, err := meter.Int64UpDownCounter("go.up_down." + name)
	if err != nil {
		return err
	}
	gauge, err := meter.Float64Gauge("go.gauge." + name)
	if err != nil {
		return err
	}

	sent := latencies(1, 6_000)
	total, height := 0, 0
	for i, value := range sent {
		buckets.Record(ctx, value, with)
		explicit.Record(ctx, value, with)
		counter.Add(ctx, int64(i%7), with)
		total += i % 7
		upDown.Add(ctx, int64(i%5-1), with)
		height += i%5 - 1
		gauge.Record(ctx, value, with)
		if i%2_000 == 1_999 {
			if err := provider.ForceFlush(ctx); err != nil {
				return err
			}
		}
	}
	if err := provider.Shutdown(ctx); err != nil {
		return err
	}

	client := named("OpenTelemetry Go", "go.opentelemetry.io/otel/sdk/metric")
	what := "gRPC, " + name
	kinds := []string{"explicit"}
	if views != nil {
		kinds = append(kinds, "exponential")
	}
	for _, kind := range kinds {
		it := sent.distribution(client, what+" "+kind, `{"go.`+kind+`.`+name+`"}`, 1)
		it.Unit = "s"
		it.print()
	}
	number(client, what+" counter", `exact_increase({"go.counter.`+name+`"}[1h])`, len(sent), float64(total))
	number(client, what+" up-down counter", `{"go.up_down.`+name+`"}`, len(sent), float64(height))
	number(client, what+" gauge", `{"go.gauge.`+name+`"}`, len(sent), sent[len(sent)-1])
	if name != "delta" {
		by := what + ", by its Prometheus name:"
		number(client, by+" histogram", "go_explicit_"+name+"_seconds_count", len(sent), float64(len(sent)))
		number(client, by+" counter", "go_counter_"+name+"_total", len(sent), float64(total))
	}
	return nil
}
