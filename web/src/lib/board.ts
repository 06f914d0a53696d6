/** Boards: pictures that people put together, kept on the server as JSON. */

import { ask, exchange } from "./api";
import { quoted } from "./selector";

/** One picture: a metric as a heatmap, or a question. */
export interface Panel {
  title: string;
  /** A selector of distributions, or a question in the language. */
  text: string;
  language: "metric" | "promql" | "caql";
}

/** A panel of a later topdeck: not known here, but not lost either when the board is kept. */
export interface Foreign {
  foreign: unknown;
}

/** Keys that are not known here stay in it. */
export interface Board {
  schema: 1;
  title: string;
  panels: (Panel | Foreign)[];
}

/** A board as it was read, and the tag by which it is changed only if nobody else did meanwhile. */
export interface Held {
  board: Board;
  tag: string | null;
}

export interface Listed {
  name: string;
  title: string;
}

/** Bytes that the server takes. */
export const BYTES_MAX = 256 << 10;

const path = (name: string) => `/v1/boards/${encodeURIComponent(name)}`;

export async function listed(signal?: AbortSignal): Promise<Listed[]> {
  return (await ask<{ boards: Listed[] }>("/v1/boards", {}, signal)).boards;
}

export async function load(name: string, signal?: AbortSignal): Promise<Held> {
  const { answer, tag } = await exchange<unknown>("GET", path(name), { signal });
  return { board: checked(answer), tag };
}

/** Keeps a new one; refused with 412 if there is one of that name. */
export async function create(name: string, board: Board): Promise<void> {
  await exchange("PUT", path(name), { body: told(board), headers: { "If-None-Match": "*" } });
}

/** Keeps it as it is now; refused with 412 if it was changed since the tag. */
export async function save(name: string, board: Board, tag: string | null): Promise<Held> {
  const kept = await exchange("PUT", path(name), { body: told(board), headers: matching(tag) });
  return { board, tag: kept.tag };
}

export async function remove(name: string, tag: string | null): Promise<void> {
  await exchange("DELETE", path(name), { headers: matching(tag) });
}

function matching(tag: string | null): Record<string, string> {
  return tag === null ? {} : { "If-Match": tag };
}

/** A board out of whatever JSON. What is not known is kept, but for what nobody could have meant. */
export function checked(json: unknown): Board {
  const board = (json && typeof json === "object" && !Array.isArray(json) ? json : {}) as Record<
    string,
    unknown
  >;
  const { schema = 1, title, panels } = board;
  if (schema !== 1)
    throw new Error(
      `this board is of a later topdeck: its schema is ${String(schema).slice(0, 20)}, here 1 is known`,
    );
  const list = Array.isArray(panels) ? (panels as unknown[]) : [];
  return {
    ...board,
    schema,
    title: typeof title === "string" ? title : "",
    panels: list.flatMap(panel),
  };
}

function panel(json: unknown): (Panel | Foreign)[] {
  if (!json || typeof json !== "object" || Array.isArray(json)) return [];
  const { title, text, language } = json as Record<string, unknown>;
  const known = (["metric", "promql", "caql"] as const).find((one) => one === language);
  if (typeof text !== "string" || !known) return [{ foreign: json }];
  return [
    {
      ...json,
      title: typeof title === "string" && title !== "" ? title : text,
      text,
      language: known,
    },
  ];
}

/** As it is kept, on the server and in files. */
export function told(board: Board): object {
  return { ...board, panels: board.panels.map((one) => ("foreign" in one ? one.foreign : one)) };
}

/** A name for the address, out of a title. */
export function named(title: string): string {
  const name = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return name.slice(0, 64) || "board";
}

/** What every host has, for one of them. */
export function ofHost(host: string): Board {
  const only = `host=${quoted(host)}`;
  const metric = (title: string, name: string): Panel => ({
    title,
    text: `${name}{${only}}`,
    language: "metric",
  });
  const question = (title: string, text: string): Panel => ({ title, text, language: "promql" });
  return {
    schema: 1,
    title: `Host ${host}`,
    panels: [
      metric("Block I/O", "host_block_io"),
      metric("Waits for a processor", "host_run_queue_delay"),
      metric("Hiccups", "host_hiccup"),
      question(
        "Processor time by mode",
        `sum by (mode) (rate(host_cpu_seconds_total{${only}}[5m]))`,
      ),
      question("Memory that is available", `host_memory_available_bytes{${only}}`),
      question(
        "Bytes of the network",
        `sum by (direction) (rate(host_network_bytes_total{${only}}[5m]))`,
      ),
    ],
  };
}
