// A NATS server with JetStream file storage and its one client in the same process, as
// bench/src/journal/nats.rs runs them:
//
//	nats append|read JOURNAL MESSAGES SIZE
//	nats acknowledge JOURNAL MESSAGES SIZE PRODUCERS MILLISECONDS
//
// MESSAGES is a file of messages of SIZE bytes each. The figures are printed as one line, see there.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "MESSAGES"
	subject    = "messages"
	// Unanswered publishes; the server works on them while more are sent.
	maxPending = 4096
	// What a consumer asks for ahead.
	maxPulled = 10_000
	patience  = 2 * time.Minute
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 4 {
		return fmt.Errorf("too few arguments")
	}
	mode, journal := arguments[0], arguments[1]
	messages, err := os.ReadFile(arguments[2])
	if err != nil {
		return err
	}
	var numbers []int
	for _, argument := range arguments[3:] {
		number, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		numbers = append(numbers, number)
	}
	size := numbers[0]
	all := make([][]byte, 0, len(messages)/size)
	for ; len(messages) >= size; messages = messages[size:] {
		all = append(all, messages[:size])
	}

	s, js, err := start(journal, mode == "acknowledge")
	if err != nil {
		return err
	}
	defer s.WaitForShutdown()
	defer s.Shutdown()
	switch mode {
	case "append":
		return appendAll(js, all)
	case "read":
		return readAll(js, all)
	case "acknowledge":
		if len(numbers) != 3 {
			return fmt.Errorf("producers and milliseconds are missing")
		}
		return acknowledge(js, all, numbers[1], time.Duration(numbers[2])*time.Millisecond)
	}
	return fmt.Errorf("unknown mode %s", mode)
}

// The server listens nowhere: its client is in this process.
func start(journal string, syncAlways bool) (*server.Server, jetstream.JetStream, error) {
	s, err := server.NewServer(&server.Options{
		DontListen: true,
		JetStream:  true,
		StoreDir:   journal,
		SyncAlways: syncAlways,
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		return nil, nil, err
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		return nil, nil, fmt.Errorf("the server does not get ready")
	}
	connection, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		return nil, nil, err
	}
	_, err = js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name:     streamName,
		Subjects: []string{subject},
		Storage:  jetstream.FileStorage,
	})
	return s, js, err
}

func appendAll(js jetstream.JetStream, all [][]byte) error {
	before := now()
	futures := make([]jetstream.PubAckFuture, 0, len(all))
	for _, message := range all {
		future, err := js.PublishAsync(subject, message, jetstream.WithStallWait(patience))
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		return fmt.Errorf("not all publishes were acknowledged")
	}
	after := now()
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		}
	}
	before.print(after)
	return nil
}

func readAll(js jetstream.JetStream, all [][]byte) error {
	stream, err := js.Stream(context.Background(), streamName)
	if err != nil {
		return err
	}
	before := now()
	consumer, err := stream.OrderedConsumer(context.Background(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(maxPulled))
	if err != nil {
		return err
	}
	var found byte
	for range all {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		found ^= touch(message.Data())
	}
	after := now()
	messages.Stop()
	var expected byte
	for _, message := range all {
		expected ^= touch(message)
	}
	if found != expected {
		return fmt.Errorf("read other bytes than were written")
	}
	before.print(after)
	return nil
}

func touch(message []byte) (all byte) {
	for _, one := range message {
		all ^= one
	}
	return all
}

// Each producer publishes and waits for the acknowledgement, then again, until the time is over.
func acknowledge(js jetstream.JetStream, all [][]byte, producers int, duration time.Duration) error {
	latencies := make([][]time.Duration, producers)
	failures := make([]error, producers)
	fmt.Println("begin")
	var done sync.WaitGroup
	began := time.Now()
	for at := range producers {
		done.Add(1)
		go func() {
			defer done.Done()
			next := at * (len(all) / producers)
			for before := time.Now(); before.Sub(began) < duration; {
				_, err := js.Publish(context.Background(), subject, all[next%len(all)])
				if err != nil {
					failures[at] = err
					return
				}
				now := time.Now()
				latencies[at] = append(latencies[at], now.Sub(before))
				before, next = now, next+1
			}
		}()
	}
	done.Wait()
	passed := time.Since(began)
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	sorted := slices.Concat(latencies...)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return fmt.Errorf("nothing was acknowledged")
	}
	us := func(share float64) float64 {
		return float64(sorted[int(share*float64(len(sorted)-1)+0.5)].Nanoseconds()) / 1e3
	}
	fmt.Printf("%d\t%f\t%f\t%f\t%f\n", len(sorted), passed.Seconds(), us(0.5), us(0.99), us(1))
	return nil
}

// What this process has used so far.
type usage struct {
	time    time.Time
	cpu     float64
	written int64
}

func now() usage {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return usage{time.Now(), seconds(used.Utime) + seconds(used.Stime), written()}
}

// Bytes given to write and its kin, or -1.
func written() int64 {
	counters, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for _, line := range strings.Split(string(counters), "\n") {
		if text, found := strings.CutPrefix(line, "wchar: "); found {
			if number, err := strconv.ParseInt(text, 10, 64); err == nil {
				return number
			}
		}
	}
	return -1
}

// Seconds passed, seconds of processor time, bytes left (-1: the caller counts them) and bytes written.
func (before usage) print(after usage) {
	written := after.written - before.written
	if before.written < 0 {
		written = -1
	}
	fmt.Printf("%f\t%f\t-1\t%d\n",
		after.time.Sub(before.time).Seconds(), after.cpu-before.cpu, written)
}
