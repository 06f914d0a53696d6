package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// dogStatsd sends each value by itself over UDP, and many in a line over a Unix socket.
func dogStatsd(address, socket string) error {
	// The default of 100 ms drops values when this machine stalls for so long.
	patient := statsd.WithWriteTimeout(10 * time.Second)
	common := []statsd.Option{statsd.WithoutTelemetry(), statsd.WithoutOriginDetection(), patient}
	// A socket of datagrams over UDP loses what the kernel has no room for: a few at a time.
	if err := dogStatsdTo("UDP", address, 2_000, append(common, statsd.WithoutClientSideAggregation())); err != nil {
		return err
	}
	return dogStatsdTo("unix", "unix://"+socket, 6_000, append(common, statsd.WithExtendedClientSideAggregation()))
}

func dogStatsdTo(way, address string, count int, options []statsd.Option) error {
	var failed atomic.Pointer[error]
	to, err := statsd.New(address, append(options, statsd.WithErrorHandler(func(err error) { failed.Store(&err) }))...)
	if err != nil {
		return err
	}
	sent := whole(2, count)
	tags := []string{"way:" + way, "canary"}
	total := 0
	for i, value := range sent {
		if err := to.Timing("dog.timing", time.Duration(value)*time.Millisecond, tags, 1); err != nil {
			return err
		}
		if err := to.Distribution("dog.distribution", value, tags, 1); err != nil {
			return err
		}
		if err := to.Count("dog.count", int64(i%7), tags, 1); err != nil {
			return err
		}
		total += i % 7
		if err := to.Gauge("dog.gauge", value, tags, 1); err != nil {
			return err
		}
		if err := to.Set("dog.set", fmt.Sprint(i%100), tags, 1); err != nil {
			return err
		}
		if i%100 == 99 {
			if err := to.Flush(); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err := to.Close(); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}

	client := named("datadog-go", "github.com/DataDog/datadog-go/v5")
	of := func(name string) string { return `{"` + name + `",way="` + way + `",canary="true"}` }
	// Milliseconds are stored in nanoseconds.
	sent.distribution(client, way+" timing", of("dog.timing"), 1e6).print()
	sent.distribution(client, way+" distribution", of("dog.distribution"), 1).print()
	number(client, way+" count", "exact_increase("+of("dog.count")+"[1h])", count, float64(total))
	number(client, way+" gauge", of("dog.gauge"), count, sent[count-1])
	return nil
}
