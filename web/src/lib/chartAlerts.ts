/** Which alerts a chart shows: those whose rule reads a metric of the chart. */

import { isAlertOf } from "./firingAlerts.svelte";
import { metricsOf, type MetricLabels } from "./queryMetrics";

/** Whether a chart of a selector or a query, or of a metric, shows an alert. */
export function showsAlert(
  shown: string | MetricLabels,
  alert: { query: string; labels: Record<string, string> },
): boolean {
  const metrics = typeof shown === "string" ? metricsOf(shown) : [shown];
  return metrics.length === 0 || metrics.some((metric) => isAlertOf(alert, metric));
}
