// Conformance records what bindings/conformance/suite.py of topdeck expects: `conformance PART`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/topdeck/topdeck/bindings/go"
)

type description = topdeck.Description

func main() {
	parts := map[string]func(){
		"kinds": kinds, "dies": dies, "threads": threads, "many": many, "buckets": buckets,
		"limits": limits, "off": off,
	}
	part, ok := parts[os.Args[1]]
	if !ok {
		fmt.Println("unsupported")
		return
	}
	part()
	topdeck.Close()
}

func check(metrics ...topdeck.Metric) {
	for _, metric := range metrics {
		if err := metric.Err(); err != nil {
			panic(err)
		}
	}
}

func kinds() {
	answered := topdeck.NewCounter(description{Name: "answered_total", Help: "Answers.",
		Labels: []topdeck.Label{{Name: "route", Value: "home"}, {Name: "code", Value: "200"}}})
	answered.Add(1)
	answered.Add(41)
	balance := topdeck.NewUpDownCounter(description{Name: "balance", Unit: "By"})
	balance.Add(10)
	balance.Add(-13)
	size := topdeck.NewGauge(description{Name: "pool_size", Unit: "1", Role: topdeck.RoleCapacity})
	size.Set(100)
	used := topdeck.NewGauge(description{Name: "pool_used", Unit: "1", Role: topdeck.RoleUsage,
		Related: size})
	used.Set(-7)
	load := topdeck.NewFloatGauge(description{Name: "load"})
	load.Set(0.25)
	state := topdeck.NewText(description{Name: "state"})
	state.Set("1.2.3")
	if !state.Set("größer") || state.Set("a"+strings.Repeat("ö", 200)) {
		panic("wrong result of Set")
	}
	alive := topdeck.NewHeartbeat(description{Name: "alive"}, 1_000_000_000)
	alive.Beat()
	alive.Beat()
	took := topdeck.NewHistogram(description{Name: "took", Unit: "ns", Role: topdeck.RoleTiming})
	for _, value := range []uint64{0, 1, 2, 1000, 123456789, 1<<53 + 1} {
		took.Record(value)
	}
	for range 3 {
		took.Record(1<<63 - 1)
	}
	slept := topdeck.NewHistogram(description{Name: "slept", Unit: "ns"})
	timer := slept.Start()
	time.Sleep(5 * time.Millisecond)
	timer.Stop()
	work := topdeck.NewInFlight(description{Name: "work"}, "device", "operation")
	sda, sdb, read := topdeck.NewTag("sda"), topdeck.NewTag("sdb"), topdeck.NewTag("read")
	work.Begin(17, sda, read)
	second := work.Begin(18, sdb)
	work.Begin(19)
	second.End()
	second.End()
	check(answered, balance, size, used, load, state, alive, took, slept, work)
}

func dies() {
	answered := topdeck.NewCounter(description{Name: "answered_total"})
	took := topdeck.NewHistogram(description{Name: "took", Unit: "ns"})
	work := topdeck.NewInFlight(description{Name: "work"}, "device")
	work.Begin(42, topdeck.NewTag("sda"))
	for i := range uint64(1000) {
		answered.Add(1)
		took.Record(i)
	}
	check(answered, took, work)
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

func threads() {
	records, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err != nil {
		panic(err)
	}
	concurrently(8, 3, records)
}

func many() { concurrently(300, 1, 1000) }

func concurrently(count, rounds int, records uint64) {
	answered := topdeck.NewCounter(description{Name: "answered_total"})
	took := topdeck.NewHistogram(description{Name: "took", Unit: "ns"})
	work := topdeck.NewInFlight(description{Name: "work"})
	check(answered, took, work)
	for range rounds {
		var group, all sync.WaitGroup
		all.Add(count)
		for range count {
			group.Add(1)
			go func() {
				defer group.Done()
				answered.Add(1)
				all.Done()
				all.Wait()
				operation := work.Begin(1)
				for i := range records {
					answered.Add(1)
					took.Record(i)
				}
				operation.End()
			}()
		}
		group.Wait()
	}
}

func buckets() {
	took := topdeck.NewHistogram(description{Name: "took"})
	check(took)
	file, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		value, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			panic(err)
		}
		took.Record(value)
	}
}

func limits() {
	for i := range 1100 {
		topdeck.NewCounter(description{Name: "many_total",
			Labels: []topdeck.Label{{Name: "n", Value: strconv.Itoa(i)}}}).Add(1)
	}
	fmt.Println(topdeck.NewCounter(description{}).Err())
	fmt.Println(topdeck.NewCounter(description{Name: "a",
		Labels: []topdeck.Label{{Name: "x"}, {Name: "x"}}}).Err())
	fmt.Println(topdeck.NewCounter(description{Name: strings.Repeat("x", 5000)}).Err())
	topdeck.NewCounter(description{Name: "twice"})
	conflict := topdeck.NewHistogram(description{Name: "twice"})
	fmt.Println(conflict.Err())
	conflict.Record(1)
}

func off() {
	answered := topdeck.NewCounter(description{Name: "answered_total"})
	answered.Add(1)
	topdeck.NewHistogram(description{Name: "took"}).Record(1)
	topdeck.NewText(description{Name: "state"}).Set("x")
	topdeck.NewHeartbeat(description{Name: "alive"}, 0).Beat()
	operation := topdeck.NewInFlight(description{Name: "work"}, "device").
		Begin(1, topdeck.NewTag("sda"))
	operation.End()
	fmt.Println(answered.Err())
}
