// Sends known measurements to a topdeck by the OpenTelemetry SDK for Node, with its default
// settings, and prints what it sent. The endpoint is OTEL_EXPORTER_OTLP_ENDPOINT, as for any
// program. The lines that it prints are those of ../go/main.go.

import { readFileSync } from "node:fs";

import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-proto";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";

const SDK = new URL("node_modules/@opentelemetry/sdk-metrics/package.json", import.meta.url);
const client = `OpenTelemetry Node ${JSON.parse(readFileSync(SDK, "utf8")).version}`;

/** Whole numbers of 1024ths: their sum in floating point is exact, in whatever order. */
function latencies(seed, count) {
  let state = seed;
  return Array.from({ length: count }, () => {
    // Park and Miller's generator.
    state = (state * 48_271) % 2_147_483_647;
    return (1 + Math.floor(-Math.log(state / 2_147_483_647) * 200)) / 1024;
  });
}

const tell = (what, ask, of, count, more) =>
  console.log(JSON.stringify({ client, what, ask, of, count, ...more }));
const number = (what, of, count, sum) => tell(what, "number", of, count, { sum });

const provider = new MeterProvider({
  readers: [new PeriodicExportingMetricReader({ exporter: new OTLPMetricExporter() })],
});
const meter = provider.getMeter("topdeck/clients");
const took = meter.createHistogram("node.took", { unit: "s" });
const counter = meter.createCounter("node.counter");
const gauge = meter.createGauge("node.gauge");

const values = latencies(21, 3_000);
let total = 0;
for (const [at, value] of values.entries()) {
  took.record(value, { route: "/cart", retried: false });
  counter.add(at % 7);
  total += at % 7;
  gauge.record(value);
  // Rejects if the export fails.
  if (at % 1_000 === 999) await provider.forceFlush();
}
await provider.shutdown();

tell("HTTP, defaults", "distribution", '{"node.took"}', values.length, {
  unit: "s",
  sum: values.reduce((a, b) => a + b),
  min: Math.min(...values),
  max: Math.max(...values),
});
number("counter", 'exact_increase({"node.counter"}[1h])', values.length, total);
number("gauge", '{"node.gauge"}', values.length, values.at(-1));
number("histogram by its Prometheus name", "node_took_seconds_count", values.length, values.length);
number("counter by its Prometheus name", "node_counter_total", values.length, total);
