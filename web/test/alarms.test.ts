import { expect, test } from "vitest";

import { findAlarms } from "../src/lib/alarms";
import type { AlertJson } from "../src/lib/alerts";
import type { SloJson } from "../src/lib/slos";

test("firing pages and spent budgets need action; the status was healthy", () => {
  const alert = (severity: string, endpoint: string) =>
    ({
      name: "PaySlow",
      state: "firing",
      labels: { alertname: "PaySlow", severity, endpoint },
      acknowledgement: null,
      silenced_by: [],
      unknown_since_ns: null,
      since_ns: 0,
      file: "a",
    }) as unknown as AlertJson;
  const alerts = [alert("page", "/pay"), alert("page", "/cart"), alert("ticket", "/pay")];
  const [pages, none] = findAlarms(alerts, []);
  expect(pages!.what).toBe(
    '2 alerts firing with severity page: PaySlow (page) {endpoint="/pay"}, ' +
      'PaySlow (page) {endpoint="/cart"}.',
  );
  expect(pages!.link).toBe("#/alerts");
  expect(none).toBeUndefined();
  const budget = { remaining: { lower: -18.66, estimate: -18.66, upper: -18.66 } };
  const slo = { name: "pay", state: "spent", budget } as unknown as SloJson;
  expect(findAlarms([], [slo])[0]!.what).toMatch(/^1 error budget spent: pay/);
});
