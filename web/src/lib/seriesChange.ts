/** Deletion, renaming and retirement of series, each after a dry run. */

import { sendRequest, type Series } from "./api";
import { quoted } from "./selector";

export type SeriesAction = "delete" | "rename" | "retire";

/** Series that a change affects, or would affect. */
export interface SeriesChange {
  series: number;
  /** Times of the first and the last row; null without rows. */
  first: number | null;
  last: number | null;
  /** Some of the series. */
  examples: ChangedSeries[];
  /** Their new names. */
  renamed: ChangedSeries[];
  /** Rows changed, or those that would be; null for a retirement. */
  rows: number | null;
  /** Whether there may be more: a dry run does not count all. */
  isLowerBound: boolean;
  /** Series retired; null after a dry run. */
  retired: number | null;
}

export interface ChangedSeries {
  name: string;
  unit: string;
  /** Name, labels and unit. */
  text: string;
}

interface SeriesChangeJson {
  series: number;
  first_ns: number | null;
  last_ns: number | null;
  examples: Series[];
  renamed?: Series[];
  rows?: number;
  rows_is_lower_bound?: boolean;
  retired?: number;
}

const NS_IN_MS = 1e6;

/** Without the number of series that a dry run has shown, nothing is changed. */
export async function changeSeries(
  action: SeriesAction,
  parameters: Record<string, string>,
  shown: number | null,
): Promise<SeriesChange> {
  const search = new URLSearchParams(parameters);
  if (shown !== null) {
    search.set("dry_run", "false");
    search.set("expected_series", String(shown));
  }
  const path = `/v1/series/${action}?${search}`;
  const { response } = await sendRequest<SeriesChangeJson>("POST", path);
  return {
    series: response.series,
    first: response.first_ns === null ? null : response.first_ns / NS_IN_MS,
    last: response.last_ns === null ? null : response.last_ns / NS_IN_MS,
    examples: response.examples.map(describeSeries),
    renamed: (response.renamed ?? []).map(describeSeries),
    rows: response.rows ?? null,
    isLowerBound: response.rows_is_lower_bound ?? false,
    retired: response.retired ?? null,
  };
}

function describeSeries({ name, labels, unit }: Series): ChangedSeries {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}=${quoted(value)}`);
  const text = `${name}${pairs.length > 0 ? `{${pairs.join(", ")}}` : ""}`;
  return { name, unit: unit ?? "", text: `${text}, ${unit ?? "no unit"}` };
}
