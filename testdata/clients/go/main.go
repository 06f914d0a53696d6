// Command clients sends known measurements to a topdeck by libraries that others wrote, and prints what it sent.
//
// Each subcommand is a client. Measurements are made up from a fixed seed. For each series that it sent, a client prints
// a line of JSON: how topdeck is asked for it, and what the answer has to be.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"
)

const usage = `usage: clients otlp HOST:PORT          OTLP over gRPC
       clients statsd HOST:PORT SOCKET  DogStatsD over UDP and over a Unix socket
       clients trap URL                 HTTPTrap
       clients hlog FILE                writes an interval log of HdrHistogram
       clients exporter                 metrics for Prometheus, until its input ends`

func main() {
	arguments := append(os.Args[1:], "", "", "")
	var err error
	switch arguments[0] {
	case "otlp":
		err = otlp(arguments[1])
	case "statsd":
		err = dogStatsd(arguments[1], arguments[2])
	case "trap":
		err = trap(arguments[1])
	case "hlog":
		err = hlog(arguments[1])
	case "exporter":
		err = exporter()
	default:
		err = fmt.Errorf("%s", usage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sent is what topdeck has to answer. `Ask` is one of:
//
//	distribution  /v1/histogram with the selector `Of`
//	native        /api/v1/query with `Of`: a native histogram
//	number        /api/v1/query with `Of`: `Sum`
type sent struct {
	Client string `json:"client"`
	What   string `json:"what"`
	Ask    string `json:"ask"`
	Of     string `json:"of"`
	Count  uint64 `json:"count"`
	// Of the values; empty where it is not compared.
	Unit string `json:"unit,omitempty"`
	// Nil where the format does not have it.
	Sum *float64 `json:"sum"`
	Min *float64 `json:"min"`
	Max *float64 `json:"max"`
	// Those of sum, min and max that the format has by buckets alone: they must lie between the bounds of the answer.
	Within []string `json:"within"`
}

func (it sent) print() {
	line, err := json.Marshal(it)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// values are measurements with what is true of them. Each is a whole number of 1024ths: their sum in floating point
// is exact, in whatever order.
type values []float64

func latencies(seed int64, count int) values {
	random := rand.New(rand.NewSource(seed))
	made := make(values, count)
	for i := range made {
		made[i] = (1 + float64(int(random.ExpFloat64()*200))) / 1024
	}
	return made
}

// whole are whole numbers below 2,000.
func whole(seed int64, count int) values {
	random := rand.New(rand.NewSource(seed))
	made := make(values, count)
	for i := range made {
		made[i] = float64(1 + random.Intn(1_999))
	}
	return made
}

func (these values) sum() float64 {
	sum := 0.0
	for _, value := range these {
		sum += value
	}
	return sum
}

// distribution is what /v1/histogram has to say; `unit` is how many of topdeck's unit one of ours is.
func (these values) distribution(client, what, selector string, unit float64) sent {
	sum, least, greatest := these.sum()*unit, these[0], these[0]
	for _, value := range these {
		least, greatest = min(least, value), max(greatest, value)
	}
	least, greatest = least*unit, greatest*unit
	return sent{Client: client, What: what, Ask: "distribution", Of: selector, Count: uint64(len(these)), Sum: &sum, Min: &least, Max: &greatest}
}

func number(client, what, query string, count int, value float64) {
	sent{Client: client, What: what, Ask: "number", Of: query, Count: uint64(count), Sum: &value}.print()
}

// named is a module with the version that was built.
func named(name, module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return name + " " + dependency.Version
		}
	}
	return name
}
