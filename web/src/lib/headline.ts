/**
 * The headlines of the overview: the worst row now, and of today. They are about all rows, whether
 * they are shown or not; the command `topdeck overview` has the same.
 */

import { exact, type Bracket } from "./distribution";
import { describeExpected } from "./excess";
import {
  type AffectedPeriod,
  describeUsers,
  formatFactor,
  formatHour,
  hasYesterday,
  isProvisional,
  nameOf,
  type Overview,
  type OverviewRow,
} from "./overview";
import * as time from "./time";
import { formatCount, formatShare, formatValue } from "./unit";

const HOUR = 3_600e3;
/** Further rows that a headline names. */
const MAX_OTHERS = 3;

/**
 * How bad a row is: values above the threshold and all, now or in the worst hours of today, and the
 * share of now or of the worst hour as a ratio to the expected one.
 */
interface Severity {
  row: OverviewRow;
  above: number;
  count: number;
  burnRate: Bracket;
}

function severityNow(row: OverviewRow): Severity[] {
  const { state, aboveNow, burnRateNow: burnRate } = row;
  if (state !== "affected" || !aboveNow || !burnRate) return [];
  return [{ row, above: aboveNow.estimate, count: row.countNow, burnRate }];
}

/** Of the worst hour; without one, of the whole day. */
function severityToday(row: OverviewRow): Severity[] {
  const { stateToday, aboveToday, countToday: count, worstHour } = row;
  if (worstHour) {
    const { above, count } = worstHour.period;
    return [{ row, above: above.estimate, count, burnRate: worstHour.burnRate }];
  }
  if (stateToday !== "affected" || !aboveToday) return [];
  const above = aboveToday.estimate;
  // An hour that is significantly worse says more.
  return [{ row, above, count, burnRate: exact(1) }];
}

const formatTimes = ({ row, above, count }: Severity) =>
  `${formatFactor(above / count / row.expectedShare)}\u00a0×`;

/** `28 × the expected 0.5 % (SLO payments)`. */
function describeBurn(severity: Severity): string {
  const { expectedShare: share, threshold } = severity.row;
  const expected = describeExpected({ share, slo: threshold?.slo ?? null });
  return `${formatTimes(severity)} the expected ${expected}`;
}

/** ` Then orders 12.3 ×, ledger 1.9 ×.` */
function describeOthers(others: readonly Severity[]): string {
  const named = others.slice(0, MAX_OTHERS);
  const names = named.map((one) => `${one.row.service || one.row.name} ${formatTimes(one)}`);
  return names.length > 0 ? ` Then ${names.join(", ")}.` : "";
}

/** `Since about 13:05. `, or with the bounds of the hour in which it began. */
function describeSince(since: OverviewRow["affectedSince"], now: number): string {
  if (!since) return "";
  // Shortly after midnight it may be of yesterday.
  const tick = (at: number) => time.formatTimeToday(at, HOUR, now);
  return since.end - since.start > 2 * 60e3
    ? `Since between ${tick(since.start)} and ${tick(since.end)}. `
    : `Since about ${tick(since.start)}. `;
}

/** What is worst, and what else is to be said of it. */
export interface Headline {
  text: string;
  row: OverviewRow;
  /** Of today; null of what is affected now, and if no hour was worse than the others. */
  hours: AffectedPeriod | null;
}

/** The worst row now: since when, how sure, who; null if none is affected. */
export function headlineNow({ summary, now }: Overview): Headline | null {
  const [worst, ...others] = summary.worstNow.flatMap(severityNow);
  if (!worst) return null;
  const { row, above, count } = worst;
  const users = row.users?.now ? ` ${describeUsers(row.users, row.users.now)} affected.` : "";
  const text =
    `${describeSince(row.affectedSince, now)}${formatShare(above / count)} of its ${row.noun}, ` +
    `${describeBurn(worst)}; not chance (p < 0.001).${users}${describeOthers(others)}`;
  return { text, row, hours: null };
}

/** The worst row of today among those that are not affected now; null if there is none. */
export function headlineToday(overview: Overview): Headline | null {
  const { summary, total, now } = overview;
  const { affected, affectedEarlier: earlier, usualAgain } = summary;
  const [worst, ...others] = summary.worstEarlier.flatMap(severityToday);
  if (!worst) return null;
  const { row, above, count } = worst;
  const limit = row.threshold ? formatValue(row.threshold.value, row.unit) : "";
  const were = earlier === 1 ? "was" : "were";
  const isOver = usualAgain === earlier;
  const day = hasYesterday(overview) ? "Since yesterday" : null;
  const early = day ?? "Earlier today";
  const when = affected > 0 ? early : isOver ? `${early}, not now,` : (day ?? "Today");
  const hours = row.worstHour?.period ?? null;
  const hour = hours ? ` from ${formatHour(hours, now).replace("–", " to ")} (whole hours)` : "";
  const text =
    `${when} ${formatCount(earlier)} of ${formatCount(total)} rows ${were} affected. ` +
    `Worst: ${nameOf(row)}, ${formatCount(above)} of ${formatCount(count)} ${row.noun} above ` +
    `${limit}${hour}: ${formatShare(above / count)}, ${describeBurn(worst)}; not chance ` +
    `(p < 0.001).${describeOthers(others)}`;
  return { text, row, hours };
}

/**
 * One sentence: how many rows are affected, and the worst of them. Rows that are shown and alarmed
 * (an alert fires, or the budget is spent) are not normal, nor those with a threshold of minutes.
 */
export function summarise(
  overview: Overview,
  isAlarmed: (row: OverviewRow) => boolean = () => false,
): string {
  const { total, summary, rows } = overview;
  const { affected, uncertain, withoutThreshold } = summary;
  const unknown = summary.unknown - withoutThreshold;
  const usual = rows.filter(({ state }) => state === "usual");
  const alarmed = usual.filter(isAlarmed).length;
  const provisional = usual.filter((row) => isProvisional(row) && !isAlarmed(row)).length;
  const known = summary.usual - alarmed - provisional;
  const doubt =
    (alarmed > 0 ? ` ${formatCount(alarmed)} with a firing alert or a spent budget.` : "") +
    (provisional > 0 ? ` ${formatCount(provisional)} with a threshold of minutes only.` : "") +
    (uncertain > 0 ? ` ${formatCount(uncertain)} uncertain.` : "") +
    (withoutThreshold > 0 ? ` ${formatCount(withoutThreshold)} without a threshold yet.` : "") +
    (unknown > 0 ? ` ${formatCount(unknown)} unknown.` : "");
  const worst = summary.worstNow[0];
  if (!worst) {
    const all = total === 1 ? "The only row is" : `All ${formatCount(total)} rows are`;
    const many = known === total ? all : `${formatCount(known)} of ${formatCount(total)} rows are`;
    if (known === 0 && withoutThreshold > 0) {
      const rows =
        total === 1 ? "The only row has" : `${formatCount(withoutThreshold)} of ${total} rows have`;
      const rest = unknown > 0 ? ` ${formatCount(unknown)} unknown.` : "";
      return `${rows} values, but no threshold yet: type one, or wait until it is learned.${rest}`;
    }
    if (known === 0 && alarmed + provisional > 0) return `No row is known to be normal.${doubt}`;
    return known === 0
      ? `Nothing is known about the last 5 minutes.${doubt}`
      : `${many} normal now, in the last 5 minutes.${doubt}`;
  }
  const above = formatCount(worst.aboveNow?.estimate ?? 0);
  const limit = worst.threshold ? formatValue(worst.threshold.value, worst.unit) : "";
  const many = `${formatCount(affected)} of ${formatCount(total)}`;
  return (
    `${many} affected. Worst: ${nameOf(worst)}, ${above} of ${formatCount(worst.countNow)} ` +
    `${worst.noun} above ${limit} in the last 5 minutes.${doubt}`
  );
}
