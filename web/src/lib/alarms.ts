/** Firing alerts of the worst severity, and spent error budgets, as problems of the view Status. */

import {
  describeFiringCount,
  groupAlerts,
  isAttended,
  nameGroups,
  severityOf,
  sortAlerts,
  type AlertJson,
} from "./alerts";
import { write } from "./link";
import { plural, type Problem } from "./serverStatus";
import { describeBudget, spentFirst, type SloJson } from "./slos";

/** More names would hide the action. */
const MAX_NAMED = 5;

export function findAlarms(alerts: readonly AlertJson[], slos: readonly SloJson[]): Problem[] {
  const problems: Problem[] = [];
  const isOpen = (alert: AlertJson) => alert.state === "firing" && !isAttended(alert);
  const pages = groupAlerts(
    sortAlerts(alerts.filter((alert) => isOpen(alert) && severityOf(alert) === 1)),
  );
  if (pages.length > 0) {
    problems.push({
      what: `${describeFiringCount(pages)} with severity page: ${firstOf(nameGroups(pages))}.`,
      action: "See Alerts.",
      link: write({ view: "alerts", settings: {} }),
    });
  }
  const spent = spentFirst(slos);
  if (spent.length > 0) {
    const count = plural(spent.length, "error budget");
    problems.push({
      what: `${count} spent: ${firstOf(spent.map(describeBudget))}.`,
      action: "See SLOs.",
      link: write({ view: "slos", settings: {} }),
    });
  }
  return problems;
}

function firstOf(names: readonly string[]): string {
  const more = names.length - MAX_NAMED;
  return names.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
