package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// exporter serves /metrics in whatever format is asked for, /text and /openmetrics in these. It prints its address, and
// what it will have measured once all is measured, which takes three seconds, so that scrapes meet it half-way.
func exporter() error {
	registry := prometheus.NewRegistry()
	native := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "shop_native_seconds", Help: "Native.", NativeHistogramBucketFactor: 1.1,
	})
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "shop_classic_seconds", Help: "Classic.", Buckets: prometheus.DefBuckets,
	})
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_orders_total", Help: "Counter."})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "shop_queue", Help: "Gauge."})
	registry.MustRegister(native, classic, counter, gauge)

	form := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, EnableOpenMetricsTextCreatedSamples: true})
	http.Handle("/metrics", form)
	http.Handle("/text", asking(form, "text/plain;version=0.0.4"))
	http.Handle("/openmetrics", asking(form, "application/openmetrics-text;version=1.0.0"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- http.Serve(listener, nil) }()

	sent := latencies(5, 6_000)
	fmt.Println(listener.Addr())
	tell(sent)
	// Says that all is told.
	fmt.Println()
	go func() {
		for i, value := range sent {
			native.Observe(value)
			classic.Observe(value)
			counter.Add(float64(i % 7))
			gauge.Set(value)
			if i%20 == 19 {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		served <- nil
	}()
	return <-served
}

// asking answers as if this had been asked for.
func asking(handler http.Handler, accept string) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		request.Header.Set("Accept", accept)
		handler.ServeHTTP(answer, request)
	})
}

// tell says what comes to topdeck by each way: its own scrapes, and a Prometheus that scrapes and writes.
func tell(sent values) {
	total := 0
	for i := range sent {
		total += i % 7
	}
	orders, queue := float64(total), sent[len(sent)-1]
	scraped := named("client_golang", "github.com/prometheus/client_golang")
	for _, form := range []string{"protobuf", "text", "openmetrics"} {
		of := fmt.Sprintf(`{form="%s"}`, form)
		what := "scraped " + form
		histogram(scraped, what+" native", "shop_native_seconds"+of, sent)
		histogram(scraped, what+" classic", "shop_classic_seconds"+of, sent)
		if form != "text" { // which does not say since when it counts
			sinceStart(scraped, what+" native, since its start", "shop_native_seconds"+of, sent)
			sinceStart(scraped, what+" classic, since its start", "shop_classic_seconds"+of, sent)
		}
		number(scraped, what+" counter", "shop_orders_total"+of, len(sent), orders)
		number(scraped, what+" gauge", "shop_queue"+of, len(sent), queue)
	}
	for _, version := range []string{"1", "2"} {
		of := fmt.Sprintf(`{sent="%s"}`, version)
		what := "remote write " + version
		histogram("Prometheus", what+" native", "shop_native_seconds"+of, sent)
		number("Prometheus", what+" classic count", "shop_classic_seconds_count"+of, len(sent), float64(len(sent)))
		number("Prometheus", what+" classic sum", "shop_classic_seconds_sum"+of, len(sent), sent.sum())
		number("Prometheus", what+" classic bucket", fmt.Sprintf(`shop_classic_seconds_bucket{sent="%s",le="0.1"}`, version), len(sent), below(sent, 0.1))
		number("Prometheus", what+" counter", "shop_orders_total"+of, len(sent), orders)
		number("Prometheus", what+" gauge", "shop_queue"+of, len(sent), queue)
	}
}

// histogram is what the latest reading has to be.
func histogram(client, what, query string, sent values) {
	it := sent.distribution(client, what, query, 1)
	it.Ask, it.Min, it.Max = "native", nil, nil
	it.print()
}

// sinceStart is what the source counted since it started. Least and greatest are not in the format.
func sinceStart(client, what, selector string, sent values) {
	it := sent.distribution(client, what, selector, 1)
	it.Min, it.Max = nil, nil
	it.print()
}

func below(sent values, limit float64) float64 {
	count := 0.0
	for _, value := range sent {
		if value <= limit {
			count++
		}
	}
	return count
}
