import { expect, test } from "vitest";

import { parseContext, type InputSyntax } from "../src/lib/completionContext";

/** The bar marks the caret. */
test.each<[InputSyntax, string, Record<string, unknown> | null]>([
  ["selector", "lat|", { at: "name", written: "lat", from: 0, quoted: false }],
  ["selector", "latency{|", { at: "label", metric: "latency", written: "", form: "matcher" }],
  ["selector", 'latency{host="a",se|', { at: "label", metric: "latency", written: "se" }],
  ["selector", 'latency{host="a|', { at: "value", metric: "latency", label: "host", written: "a" }],
  ["selector", 'latency{host="}|', { at: "value", label: "host", written: "}" }],
  ["selector", 'latency{host="a"|}', null],
  ["selector", 'latency{host="a"}|', null],
  ["promql", "|", { at: "word", written: "" }],
  ["promql", "su|", { at: "word", written: "su", from: 0 }],
  ["promql", "sum(rate(lat|ency[5m]))", { at: "word", written: "lat", from: 9 }],
  ["promql", "sum by (ho|", { at: "label", metric: "", written: "ho", form: "bare" }],
  ["promql", "sum by (host, |) (x)", { at: "label", metric: "", written: "", form: "bare" }],
  [
    "promql",
    'rate(latency{host=~"we|',
    { at: "value", metric: "latency", label: "host", written: "we" },
  ],
  ["promql", "rate(latency{ho|", { at: "label", metric: "latency", written: "ho" }],
  ["promql", 'rate({"http.|', { at: "name", quoted: true, written: "http." }],
  ["promql", "rate(latency[5|", null],
  ["promql", "1.5|", null],
  ["promql", "up # su|", null],
  ["promql", "up # of all\nsu|", { at: "word", written: "su" }],
  ["promql", 'label_replace(x, "a|', null],
  ["caql", 'find:histogram("lat|', { at: "name", quoted: true, written: "lat" }],
  ["caql", "find:histogram('lat|", { at: "name", quoted: true, written: "lat" }],
  [
    "caql",
    'find:histogram("latency", "and(ho|',
    { at: "label", metric: "latency", written: "ho", form: "tag" },
  ],
  [
    "caql",
    'find("latency", "and(host:we|',
    { at: "value", metric: "latency", label: "host", written: "we", form: "tag" },
  ],
  ["caql", 'find:histogram("latency") | histogram:me|', { at: "word", written: "histogram:me" }],
  ["caql", 'label("a|', null],
])("%s: the context of %s", (language, marked, expected) => {
  const caret = marked.lastIndexOf("|");
  const text = marked.slice(0, caret) + marked.slice(caret + 1);
  const found = parseContext(text, caret, language);
  if (expected) expect(found).toMatchObject(expected);
  else expect(found).toBeNull();
});
