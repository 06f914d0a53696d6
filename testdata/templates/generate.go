// Makes golden.json: templates of rules with the output or error of Prometheus and Go.
//
// Run by hand, in an empty folder outside the repository, because the module has many dependencies:
//
//	cp .../testdata/templates/{generate.go,cases.txt} . && go mod init vectors
//	go get github.com/prometheus/prometheus/template@v0.315.0 && go run generate.go
//	cp golden.json .../testdata/templates/
//
// Source of truth: github.com/prometheus/prometheus v0.315.0 (Prometheus 3.15), text/template and
// fmt of Go 1.26.8. The cases are the project's own. A case is a line of cases.txt: a template,
// with \n, \t and \\ as escapes. A line that starts with `# ` is a comment. A line that starts with
// `html: ` is expanded as a console of Prometheus, because only consoles have tmpl. Data are the same for all cases: `labels`, `externalLabels` and `vectors` below.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

type vector struct {
	Template string `json:"template"`
	Output   string `json:"output,omitempty"`
	Error    string `json:"error,omitempty"`
}

// vectors answers the function query; every other expression fails.
func vectors(_ context.Context, expression string, at time.Time) (promql.Vector, error) {
	switch expression {
	case "empty":
		return promql.Vector{}, nil
	case "one":
		return promql.Vector{{Metric: labels.FromStrings("instance", "a:9090"), F: 42.5}}, nil
	case "three":
		return promql.Vector{
			{Metric: labels.FromStrings("__name__", "up", "instance", "c", "job", "x"), F: 3},
			{Metric: labels.FromStrings("__name__", "up", "instance", "a", "job", "y"), F: 1e9},
			{Metric: labels.FromStrings("__name__", "up", "instance", "b", "__value__", "text"), F: 0.25},
		}, nil
	case "time":
		return promql.Vector{{Metric: labels.EmptyLabels(), F: float64(at.Unix())}}, nil
	}
	return nil, errors.New("parse error: unknown expression")
}

func expand(text string, console bool) (string, error) {
	data := template.AlertTemplateData(
		map[string]string{"alertname": "Slow", "instance": "db-1.example.org:9100", "job": "node",
			"mode": "", "html": `<a href="x">O'Neil & co</a>`, "path": "/var/lib/ünïcode"},
		map[string]string{"cluster": "eu-1"},
		"https://prom.example.org/base%20path",
		promql.Sample{F: 1234.5678},
	)
	external, err := url.Parse("https://prom.example.org/base%20path")
	if err != nil {
		panic(err)
	}
	declarations := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}" +
		"{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	// 2026-03-14 15:09:26.535 UTC
	at := model.Time(1773500966535)
	e := template.NewTemplateExpander(context.Background(), declarations+text, "__alert_Slow", data, at,
		vectors, external, nil)
	if console {
		return e.ExpandHTML(nil)
	}
	return e.Expand()
}

func main() {
	file, err := os.Open("cases.txt")
	if err != nil {
		panic(err)
	}
	var out []vector
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		line, console := strings.CutPrefix(line, "html: ")
		text := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(line)
		v := vector{Template: text}
		output, err := expand(text, console)
		if err != nil {
			v.Error = err.Error()
		} else {
			v.Output = output
		}
		out = append(out, v)
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
	if err := os.WriteFile("golden.json", buffer.Bytes(), 0o644); err != nil {
		panic(err)
	}
	fmt.Println(len(out), "cases")
}
