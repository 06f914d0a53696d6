/** Boards: pictures that people put together, kept on the server as JSON. */

import { ask, send } from "./api";

/** One picture: a metric as a heatmap, or a question. */
export interface Panel {
  title: string;
  /** A selector of distributions, or a question in the language. */
  text: string;
  language: "metric" | "promql" | "caql";
}

export interface Board {
  schema: 1;
  title: string;
  panels: Panel[];
}

export interface Listed {
  name: string;
  title: string;
}

export async function listed(signal?: AbortSignal): Promise<Listed[]> {
  return (await ask<{ boards: Listed[] }>("/v1/boards", {}, signal)).boards;
}

export async function load(name: string, signal?: AbortSignal): Promise<Board> {
  return checked(await ask<unknown>(`/v1/boards/${encodeURIComponent(name)}`, {}, signal));
}

export async function save(name: string, board: Board): Promise<void> {
  await send("PUT", `/v1/boards/${encodeURIComponent(name)}`, board);
}

export async function remove(name: string): Promise<void> {
  await send("DELETE", `/v1/boards/${encodeURIComponent(name)}`);
}

/** A board out of whatever JSON; what is no panel is left out, so that one of a later topdeck shows what is known here. */
export function checked(json: unknown): Board {
  const board = (json && typeof json === "object" ? json : {}) as { title?: unknown; panels?: unknown };
  const panels = Array.isArray(board.panels) ? (board.panels as unknown[]) : [];
  return { schema: 1, title: typeof board.title === "string" ? board.title : "", panels: panels.flatMap(panel) };
}

function panel(json: unknown): Panel[] {
  if (!json || typeof json !== "object") return [];
  const { title, text, language } = json as Record<string, unknown>;
  const known = (["metric", "promql", "caql"] as const).find((one) => one === language);
  if (typeof text !== "string" || !known) return [];
  return [{ title: typeof title === "string" && title !== "" ? title : text, text, language: known }];
}

/** A name for the address, out of a title. */
export function named(title: string): string {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  return name.slice(0, 64) || "board";
}

/** What every host has, for one of them. */
export function ofHost(host: string): Board {
  const only = `host="${host.replace(/[\\"]/g, "\\$&")}"`;
  const metric = (title: string, name: string): Panel => ({ title, text: `${name}{${only}}`, language: "metric" });
  const question = (title: string, text: string): Panel => ({ title, text, language: "promql" });
  return {
    schema: 1,
    title: `Host ${host}`,
    panels: [
      metric("Block I/O", "host_block_io"),
      metric("Waits for a processor", "host_run_queue_delay"),
      metric("Hiccups", "host_hiccup"),
      question("Processor time by mode", `sum by (mode) (rate(host_cpu_seconds_total{${only}}[5m]))`),
      question("Memory that is available", `host_memory_available_bytes{${only}}`),
      question("Bytes of the network", `sum by (direction) (rate(host_network_bytes_total{${only}}[5m]))`),
    ],
  };
}
