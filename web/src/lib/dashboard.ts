/** Dashboards: panels arranged by users, stored on the server (docs/formats/dashboard.md). */

import { ApiError, getJson, sendRequest } from "./api";
import { parseVariables, type DashboardVariable } from "./dashboardVariables";
import { quoted } from "./selector";
import postgres from "../../../crates/postgres/dashboard.json";

/** A heatmap of a metric, or the result of a query. */
export interface Panel {
  title: string;
  /** A selector of distributions, or a query in `language`. */
  text: string;
  language: "metric" | "promql" | "caql";
  size?: PanelSize;
  /** Names of lines, such as `{{host}} {{device}}`; absent: all labels. */
  legend?: string;
  /** Unit of the values if the result has none. */
  unit?: string;
}

/** Wide panels fill the row; large ones are twice as high too. */
export const PANEL_SIZES = ["normal", "wide", "large"] as const;
export type PanelSize = (typeof PANEL_SIZES)[number];

/** A panel of a later version: not shown, but preserved when the dashboard is saved. */
export interface UnknownPanel {
  unknown: unknown;
}

/** Unknown keys are preserved. The server migrates queries of schema 1 when it is read from it. */
export interface Dashboard {
  schema: 1 | 2;
  title: string;
  /** Absent if there are none. */
  variables?: DashboardVariable[];
  panels: (Panel | UnknownPanel)[];
}

/** A dashboard as it was read, and its ETag: a write fails if another user has changed it. */
export interface StoredDashboard {
  dashboard: Dashboard;
  tag: string | null;
}

export interface DashboardSummary {
  name: string;
  title: string;
}

/** The server's limit. */
export const MAX_BYTES = 256 << 10;

const path = (name: string) => `/v1/dashboards/${encodeURIComponent(name)}`;

export async function list(signal?: AbortSignal): Promise<DashboardSummary[]> {
  return (await getJson<{ dashboards: DashboardSummary[] }>("/v1/dashboards", {}, signal))
    .dashboards;
}

export async function load(name: string, signal?: AbortSignal): Promise<StoredDashboard> {
  const { response, tag } = await sendRequest<unknown>("GET", path(name), { signal });
  return { dashboard: { ...parseDashboard(response), schema: 2 }, tag };
}

/** Stores a new one; fails with 412 if the name is in use. */
export async function create(name: string, dashboard: Dashboard): Promise<void> {
  const headers = { "If-None-Match": "*" };
  await sendRequest("PUT", path(name), { body: toJson(dashboard), headers });
}

/** Stores a new one under the first free name that its title makes; returns the name. */
export async function createNamed(
  dashboard: Dashboard,
  used: ReadonlySet<string> = new Set(),
): Promise<string> {
  const base = slug(dashboard.title);
  for (let [number, free] = [1, base]; ; free = `${base.slice(0, 60)}-${++number}`) {
    if (used.has(free)) continue;
    try {
      await create(free, dashboard);
      return free;
    } catch (error) {
      // Another user created this name meanwhile.
      if (!isConflict(error)) throw error;
    }
  }
}

/** Whether another user has changed or created the dashboard. */
export function isConflict(error: unknown): boolean {
  return error instanceof ApiError && error.status === 412;
}

/** Attempts to add a panel while other users save the same dashboard. */
const MAX_ATTEMPTS = 5;

/** Adds a panel at the end of a stored dashboard, also if others change it at the same time. */
export async function addPanel(to: DashboardSummary, panel: Panel): Promise<DashboardSummary> {
  for (let attempt = 1; ; attempt++) {
    const { dashboard, tag } = await load(to.name);
    try {
      await save(to.name, { ...dashboard, panels: [...dashboard.panels, panel] }, tag);
      return to;
    } catch (error) {
      if (!isConflict(error) || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

/** Creates a dashboard of one panel, with its title. */
export async function createNew(panel: Panel): Promise<DashboardSummary> {
  const { title } = panel;
  return { name: await createNamed({ schema: 2, title, panels: [panel] }), title };
}

/** Stores a changed one; fails with 412 if it was changed since `tag`. */
export async function save(
  name: string,
  dashboard: Dashboard,
  tag: string | null,
): Promise<StoredDashboard> {
  const options = { body: toJson(dashboard), headers: ifMatch(tag) };
  return { dashboard, tag: (await sendRequest("PUT", path(name), options)).tag };
}

export async function remove(name: string, tag: string | null): Promise<void> {
  await sendRequest("DELETE", path(name), { headers: ifMatch(tag) });
}

function ifMatch(tag: string | null): Record<string, string> {
  return tag === null ? {} : { "If-Match": tag };
}

/** Reads any JSON. Unknown keys and panels are preserved; values of a wrong type are dropped. */
export function parseDashboard(json: unknown): Dashboard {
  const isObject = json && typeof json === "object" && !Array.isArray(json);
  const fields = (isObject ? json : {}) as Record<string, unknown>;
  const { variables, ...others } = fields;
  const { schema = 1, title, panels } = others;
  if (schema !== 1 && schema !== 2) {
    const version = String(schema).slice(0, 20);
    throw new Error(
      `cannot read dashboard: schema ${version} is newer than 2; use a newer topdeck`,
    );
  }
  const known = parseVariables(variables);
  return {
    ...others,
    ...(known.length > 0 ? { variables: known } : {}),
    schema,
    title: typeof title === "string" ? title : "",
    panels: Array.isArray(panels) ? (panels as unknown[]).flatMap(parsePanel) : [],
  };
}

function parsePanel(json: unknown): (Panel | UnknownPanel)[] {
  if (!json || typeof json !== "object" || Array.isArray(json)) return [];
  const { size, legend, unit, ...fields } = json as Record<string, unknown>;
  const { title, text, language } = fields;
  const known = (["metric", "promql", "caql"] as const).find((one) => one === language);
  if (typeof text !== "string" || !known) return [{ unknown: json }];
  const shown = typeof title === "string" && title !== "" ? title : text;
  // The normal size is that of a panel without one.
  const sizes = PANEL_SIZES.filter((one) => one === size).map((one) => ({ size: one }));
  const texts = Object.entries({ legend, unit }).filter(
    ([, one]) => typeof one === "string" && one !== "",
  );
  const more = Object.fromEntries(texts) as { legend?: string; unit?: string };
  return [{ ...fields, title: shown, text, language: known, ...sizes[0], ...more }];
}

/** The stored form, on the server and in files. */
export function toJson(dashboard: Dashboard): object {
  const panels = dashboard.panels.map((one) => ("unknown" in one ? one.unknown : one));
  return { ...dashboard, panels };
}

/** A name for the address, from a title. */
export function slug(title: string): string {
  const name = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return name.slice(0, 64) || "dashboard";
}

/** A dashboard of PostgreSQL servers, of which one can be chosen (docs/postgres.md). */
export function postgresDashboard(): Dashboard {
  return parseDashboard(postgres);
}

/** A dashboard of the metrics that every host has. */
export function hostDashboard(host: string): Dashboard {
  const matcher = `host=${quoted(host)}`;
  const metric = (title: string, name: string): Panel => ({
    title,
    text: `${name}{${matcher}}`,
    language: "metric",
  });
  const query = (title: string, text: string): Panel => ({ title, text, language: "promql" });
  const cpu = `sum by (mode) (rate(host_cpu_seconds_total{${matcher}}[5m]))`;
  const network = `sum by (direction) (rate(host_network_bytes_total{${matcher}}[5m]))`;
  return {
    schema: 2,
    title: `Host ${host}`,
    panels: [
      metric("Block I/O latency", "host_block_io_latency"),
      metric("Run queue latency", "host_run_queue_latency"),
      metric("Hiccups", "host_hiccup_delay"),
      query("CPU seconds per second, by mode", cpu),
      query("Memory available", `host_memory_available_bytes{${matcher}}`),
      query("Network bytes per second", network),
    ],
  };
}
