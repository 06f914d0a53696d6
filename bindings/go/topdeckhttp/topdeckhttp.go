// Package topdeckhttp records the requests of a net/http server in shared memory.
//
//	mux.Handle("GET /cart", topdeckhttp.Handler("GET /cart", cart))
//
// or, around a whole mux, with the pattern that matched as the route:
//
//	http.ListenAndServe(address, topdeckhttp.Handler("", mux))
package topdeckhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topdeck/topdeck/bindings/go"
)

// Names of the metrics.
const (
	// Histogram in ns, with the labels method, route and status ("2xx").
	Duration = "http_server_request_duration"
	// Operations in flight, with the tags method and route.
	InFlight = "http_server_requests_in_flight"
)

var inFlight = sync.OnceValue(func() *topdeck.InFlight {
	return topdeck.NewInFlight(topdeck.Description{Name: InFlight,
		Help: "Requests that are being answered."}, "method", "route")
})

type series struct{ method, route, status string }

// durations has the histograms by series. Labels are bounded: a method is one of HTTP's, a route is
// a pattern of the program, and beyond 1,000 series the library combines them.
var durations sync.Map

func duration(of series) *topdeck.Histogram {
	if found, ok := durations.Load(of); ok {
		return found.(*topdeck.Histogram)
	}
	made := topdeck.NewHistogram(topdeck.Description{
		Name: Duration, Unit: "ns", Help: "Time to answer a request.", Role: topdeck.RoleTiming,
		Labels: []topdeck.Label{{Name: "method", Value: of.method},
			{Name: "route", Value: of.route}, {Name: "status", Value: of.status}},
	})
	found, _ := durations.LoadOrStore(of, made)
	return found.(*topdeck.Histogram)
}

// tags has the interned texts of methods and routes.
var tags sync.Map

func tag(text string) topdeck.Tag {
	if found, ok := tags.Load(text); ok {
		return found.(topdeck.Tag)
	}
	found, _ := tags.LoadOrStore(text, topdeck.NewTag(text))
	return found.(topdeck.Tag)
}

// Handler records the requests that another handler answers. With an empty route, it is the pattern
// that http.ServeMux matched, or "unmatched"; it is not known while the request is in flight.
func Handler(route string, next http.Handler) http.Handler {
	var number atomic.Uint64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := knownMethod(r.Method)
		var operation topdeck.Operation
		if route == "" {
			operation = inFlight().Begin(number.Add(1), tag(method))
		} else {
			operation = inFlight().Begin(number.Add(1), tag(method), tag(route))
		}
		writer := &statusWriter{ResponseWriter: w}
		start := time.Now()
		// A handler that panics has not answered: net/http closes the connection.
		status := "panic"
		defer func() {
			took := time.Since(start)
			operation.End()
			of := series{method, route, status}
			if of.route == "" {
				of.route = r.Pattern
			}
			if of.route == "" {
				of.route = "unmatched"
			}
			duration(of).RecordDuration(took)
		}()
		next.ServeHTTP(writer, r)
		status = writer.class()
	})
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the first final status.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush is for programs that assert http.Flusher.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack is for programs that assert http.Hijacker, such as those of WebSockets.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return connection, buffer, err
}

// ReadFrom lets net/http send a file without copying it.
func (w *statusWriter) ReadFrom(source io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return io.Copy(w.ResponseWriter, source)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) class() string {
	switch {
	case w.status == 0:
		return "2xx"
	case w.status >= 100 && w.status < 600:
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[w.status/100-1]
	}
	return "other"
}
