package topdeckhttp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/topdeck/topdeck/bindings/go"
)

// A program that uses the middleware, as read by topdeck.
func TestRequestsAreRecorded(t *testing.T) {
	program := os.Getenv("TOPDECK_BIN")
	if program == "" {
		t.Skip("TOPDECK_BIN is not set")
	}
	path, err := topdeck.Path()
	if err != nil {
		t.Skip(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "0" {
			http.Error(w, "no such item", http.StatusNotFound)
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte("an item"))
	})
	mux.HandleFunc("/panics", func(http.ResponseWriter, *http.Request) { panic("a bug") })
	handler := Handler("", mux)
	for _, target := range []string{"/items/1", "/items/2", "/items/0", "/nothing"} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
	}
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/panics", nil))
	}()
	output, err := exec.Command(program, "cat", "--json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Metrics []struct {
			Name    string
			Labels  struct{ Method, Route, Status string }
			Count   int
			Started int
		}
	}
	if err := json.Unmarshal(output, &read); err != nil {
		t.Fatal(err)
	}
	found := map[series]int{}
	for _, metric := range read.Metrics {
		switch metric.Name {
		case Duration:
			found[series{metric.Labels.Method, metric.Labels.Route, metric.Labels.Status}] =
				metric.Count
		case InFlight:
			if metric.Count != 0 || metric.Started != 5 {
				t.Errorf("in flight: %+v", metric)
			}
		}
	}
	expected := map[series]int{
		{"GET", "GET /items/{id}", "2xx"}: 2,
		{"GET", "GET /items/{id}", "4xx"}: 1,
		{"GET", "unmatched", "4xx"}:       1,
		{"other", "/panics", "panic"}:     1,
	}
	for of, count := range expected {
		if found[of] != count {
			t.Errorf("%+v: %d, expected %d", of, found[of], count)
		}
	}
	if len(found) != len(expected) {
		t.Errorf("found %+v", found)
	}
}
