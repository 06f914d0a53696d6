/** Time intervals in which a maintenance window is active, as the server stores them. */

export interface TimeInterval {
  times?: { start_time: string; end_time: string }[];
  weekdays?: string[];
  days_of_month?: string[];
  months?: string[];
  years?: string[];
  location?: string;
}

/** `sunday 02:00 to 04:00, Europe/Berlin`. */
export function describeInterval(interval: TimeInterval): string {
  const { times, weekdays, days_of_month, months, years, location } = interval;
  const days = [
    weekdays?.join(", "),
    days_of_month && `day ${days_of_month.join(", ")} of the month`,
    months && `month ${months.join(", ")}`,
    years?.join(", "),
  ].filter((part) => part);
  const hours = times?.map(({ start_time, end_time }) => `${start_time} to ${end_time}`);
  const when = [days.join("; ") || "each day", hours?.join(" and ")].filter((part) => part);
  return `${when.join(" ")}, ${location ?? "UTC"}`;
}
