import { expect, test } from "vitest";

import { showsAlert } from "../src/lib/chartAlerts";
import { metricsOf } from "../src/lib/queryMetrics";

const names = (text: string) => metricsOf(text).map(({ name }) => name);

test("a selector has its metric with its labels", () => {
  expect(metricsOf('latency{route="/pay",zone=~"a|b"}')).toEqual([
    { name: "latency", labels: { route: "/pay" } },
  ]);
  expect(metricsOf("latency")).toEqual([{ name: "latency", labels: {} }]);
  expect(metricsOf('{"http.duration",host="a"}')).toEqual([
    { name: "http.duration", labels: { host: "a" } },
  ]);
  expect(metricsOf('{__name__="a b"}')).toEqual([{ name: "a b", labels: {} }]);
  expect(metricsOf('and(__name:latency,route:"x")')).toEqual([]);
  expect(metricsOf("")).toEqual([]);
});

test("a query has the metrics of its selectors and neither functions nor groupings", () => {
  const quantile = 'histogram_quantile(0.99, sum by (le, route) (rate(latency_bucket{a="b"}[5m])))';
  expect(names(quantile)).toEqual(["latency_bucket"]);
  expect(names("errors_total / on (job) requests_total > 0.5 and up == 1 offset 5m")).toEqual([
    "errors_total",
    "requests_total",
    "up",
  ]);
  expect(names("1 + 2")).toEqual([]);
});

// Heatmaps of checkout had the alerts of all other metrics.
test("a chart shows the alerts of its metric only", () => {
  const slow = { query: "quantile 0.99 above 250ms of checkout within 5 min", labels: {} };
  const full = { query: "disk_free_bytes < 1e9", labels: { host: "a" } };
  expect(showsAlert("checkout", slow)).toBe(true);
  expect(showsAlert("checkout", full)).toBe(false);
  expect(showsAlert('disk_free_bytes{host="a"}', full)).toBe(true);
  expect(showsAlert('disk_free_bytes{host="b"}', full)).toBe(false);
  expect(showsAlert("histogram_count(rate(checkout[5m]))", slow)).toBe(true);
  // The selector of a name with dots is in another language: each row had all alerts.
  expect(showsAlert({ name: "rpc.duration", labels: { "service.name": "cart" } }, slow)).toBe(
    false,
  );
  expect(showsAlert({ name: "checkout", labels: {} }, slow)).toBe(true);
  // Nobody can say.
  expect(showsAlert("and(__name:checkout)", full)).toBe(true);
});
