/** Firing alerts of the rows of the overview. */

import { fetchAlerts, groupAlerts, isAttended, type AlertJson } from "./alerts";
import type { OverviewRow } from "./overview";
import { metricsOf } from "./queryMetrics";
import { ServerRequest } from "./request.svelte";

const REPEAT_MS = 15_000;
/** How long a response serves the other tables of the page. */
const FRESH_MS = 5_000;

let latest: { at: number; alerts: Promise<AlertJson[]> } | null = null;

function sharedAlerts(): Promise<AlertJson[]> {
  if (latest && Date.now() - latest.at < FRESH_MS) return latest.alerts;
  const response = fetchAlerts(null, AbortSignal.timeout(REPEAT_MS));
  const alerts = response.then((json) => json.alerts.filter(({ state }) => state === "firing"));
  latest = { at: Date.now(), alerts };
  alerts.catch(() => (latest = null));
  return alerts;
}

/** Must be created while a component initialises. */
export class FiringAlerts {
  private readonly request = new ServerRequest<AlertJson[]>();

  constructor() {
    const load = () => void this.request.run(sharedAlerts);
    $effect(load);
    $effect(() => this.request.repeat(REPEAT_MS, load));
  }

  /** All of them; null before the first response. */
  get all(): readonly AlertJson[] | null {
    return this.request.value;
  }

  /** Number of firing alerts of a row. */
  count(row: Pick<OverviewRow, "name" | "labels">): number {
    return countFiring((this.request.value ?? []).filter((alert) => isAlertOf(alert, row)));
  }
}

/**
 * Number of problems: alerts that nobody acknowledged or silenced, those of the windows of an SLO
 * as one. All numbers of the overview count so.
 */
export function countFiring(alerts: readonly AlertJson[]): number {
  return groupAlerts(alerts.filter((alert) => !isAttended(alert))).length;
}

/**
 * Whether the rule of an alert reads the metric of a row, and no label of the alert, nor of the
 * metric in its query, is another one. A name in PromQL may end with unit or part: `latency` is
 * also `latency_seconds_bucket`.
 */
export function isAlertOf(
  { query, labels }: Pick<AlertJson, "query" | "labels">,
  row: Pick<OverviewRow, "name" | "labels">,
): boolean {
  const name = row.name.replace(/[^a-zA-Z0-9_:]/g, "_");
  const quoted = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const suffix = "(?:_(?:seconds|milliseconds|bytes|total|bucket|sum|count))*";
  const readsIt =
    query.includes(`"${row.name}"`) ||
    new RegExp(`(?<![\\w:])${quoted}${suffix}(?![\\w:])`).test(query);
  const agrees = (of: Readonly<Record<string, string>>) =>
    Object.entries(row.labels).every(([label, value]) => (of[label] ?? value) === value);
  const isName = new RegExp(`^${quoted}${suffix}$`);
  const read = metricsOf(query).filter((one) => one.name === row.name || isName.test(one.name));
  return readsIt && agrees(labels) && (read.length === 0 || read.some((one) => agrees(one.labels)));
}
