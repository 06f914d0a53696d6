package main

import (
	"errors"
	"log"
	"strings"

	cgm "github.com/circonus-labs/circonus-gometrics"
)

// failures are what the library logs, which has no other way to tell.
type failures struct{ first string }

func (these *failures) Write(line []byte) (int, error) {
	if these.first == "" && strings.Contains(string(line), "[ERROR]") {
		these.first = string(line)
	}
	return len(line), nil
}

// trap sends histograms, counters, gauges and texts, in two documents.
func trap(url string) error {
	failed := &failures{}
	config := &cgm.Config{Interval: "0", ResetCounters: "false", Log: log.New(failed, "", 0)}
	config.CheckManager.Check.SubmissionURL = url
	metrics, err := cgm.New(config)
	if err != nil {
		return err
	}
	sent := whole(3, 4_000)
	total := 0
	for i, value := range sent {
		metrics.Timing("trap_timing", value/1000)
		metrics.IncrementByValue("trap_count", uint64(i%7))
		total += i % 7
		metrics.Gauge("trap_gauge", value)
		metrics.SetText("trap_text", "deployed")
		if i%2_000 == 1_999 {
			metrics.Flush()
		}
	}
	if failed.first != "" {
		return errors.New(failed.first)
	}

	client := named("circonus-gometrics", "github.com/circonus-labs/circonus-gometrics")
	timing := sent.distribution(client, "HTTPTrap timing", "trap_timing", 0.001)
	timing.Within = []string{"sum", "min", "max"}
	timing.print()
	number(client, "HTTPTrap counter", "trap_count", len(sent), float64(total))
	number(client, "HTTPTrap gauge", "trap_gauge", len(sent), sent[len(sent)-1])
	return nil
}
