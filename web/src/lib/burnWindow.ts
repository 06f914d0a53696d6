/** Windows of the burn-rate alerts of SLOs. */

import type { AlertJson } from "./alerts";

/** File of the alerts of SLOs, which are in no rule file. */
const SLO_FILE = "slo";

/** `window 1h, factor 14.4` of a burn-rate alert of an SLO; empty of others. */
export function describeWindow(alert: Pick<AlertJson, "file" | "labels" | "query">): string {
  const { window } = alert.labels;
  if (alert.file !== SLO_FILE || window === undefined) return "";
  const factor = /burn_rate\(([\d.]+),/.exec(alert.query)?.[1];
  return `window ${window}${factor === undefined ? "" : `, factor ${factor}`}`;
}
