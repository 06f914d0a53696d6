/** A topdeck server for a test file. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

/** Settings of `[host]` that enable a collector. */
const COLLECTORS = [
  "procfs",
  "block_io",
  "run_queue",
  "processes",
  "hiccup",
  "shm_metrics",
  "cgroups",
  "crashes",
];
const ROOT = resolve(import.meta.dirname, "../..");
const PROGRAM =
  process.env["TOPDECK_BIN"] ??
  resolve(ROOT, process.env["CARGO_TARGET_DIR"] ?? "target", "debug/topdeck");

export class Server {
  private constructor(
    private readonly process: ChildProcess,
    private readonly dir: string,
    readonly url: string,
  ) {}

  /** `host`: whether the host is measured, or its settings. `all`: settings outside of tables. */
  static async start(host: boolean | string, all = ""): Promise<Server> {
    const dir = await mkdtemp(join(tmpdir(), "topdeck-page-"));
    const config = join(dir, "topdeck.toml");
    const off = `[host]\n${COLLECTORS.map((name) => `${name} = false\n`).join("")}`;
    const table = typeof host === "string" ? `[host]\n${host}` : host ? "" : off;
    await writeFile(
      config,
      `${all}\n[http]\nlisten = ["127.0.0.1:0"]\n[statsd]\nudp = []\n${table}`,
    );
    const child = spawn(PROGRAM, ["serve", "--config", config, "--data-dir", join(dir, "data")], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    child.stdout.on("data", (data) => (output += data));
    child.stderr.on("data", (data) => (output += data));
    // The kernel chooses the port; topdeck logs it when it is ready.
    const url = await new Promise<string | undefined>((done) => {
      const look = () => {
        const address = /HTTP and OTLP at (http:[^\s,]+)\n/.exec(output);
        if (address) done(address[1]);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      child.once("exit", () => done(undefined));
    });
    if (url) return new Server(child, dir, url);
    await rm(dir, { recursive: true, force: true });
    throw new Error(`topdeck did not start: ${output}`);
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null) {
      const ended = new Promise((done) => this.process.once("exit", done));
      this.process.kill("SIGTERM");
      await ended;
    }
    await rm(this.dir, { recursive: true, force: true });
  }

  async ask<T>(path: string, parameters: Record<string, string> = {}): Promise<T> {
    const answer = await fetch(`${this.url}${path}?${new URLSearchParams(parameters)}`);
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  /** A new token; the server accepts it within seconds. */
  async addToken(name: string, scope: string): Promise<string> {
    const data = join(this.dir, "data");
    const { stdout } = await promisify(execFile)(PROGRAM, ["token", data, "add", name, scope]);
    return stdout.trim();
  }

  /** Runs another command of the program; returns its status and output. */
  async run(command: readonly string[]): Promise<{ status: number; output: string }> {
    return new Promise((done) => {
      execFile(PROGRAM, command, (error, stdout, stderr) => {
        const status = typeof error?.code === "number" ? error.code : error ? -1 : 0;
        done({ status, output: stdout + stderr });
      });
    });
  }

  /** Sends a request body of some sender. */
  async post(path: string, body: string): Promise<unknown> {
    const headers = body.startsWith("{") ? { "Content-Type": "application/json" } : {};
    const answer = await fetch(this.url + path, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    const text = await answer.text();
    return text === "" ? undefined : JSON.parse(text);
  }

  /** Records values in milliseconds, with the current time. */
  async record(metric: string, values: readonly number[]): Promise<void> {
    if (values.length > 0)
      await this.post(`/v1/record?metric=${metric}&unit=ms`, values.join("\n"));
  }

  /** Sends distributions with their times as OTLP. */
  async send(metric: string, points: readonly Point[]): Promise<void> {
    for (let from = 0; from < points.length; from += 500) {
      await this.post("/v1/metrics", document(metric, points.slice(from, from + 500)));
    }
  }
}

/** An interval in milliseconds since 1970, and its latencies in seconds. */
export interface Point {
  start: number;
  end: number;
  labels: Record<string, string>;
  values: readonly number[];
}

/** Buckets of these histograms are 2^(1/32) wide. */
const SCALE = 5;

function document(metric: string, points: readonly Point[]): string {
  const dataPoints = points.map((point) => {
    const positive = point.values.filter((value) => value > 0);
    const places = positive.map((value) => Math.ceil(Math.log2(value) * 2 ** SCALE) - 1);
    const offset = places.reduce((a, b) => Math.min(a, b), 0);
    const counts: number[] = [];
    for (const place of places) counts[place - offset] = (counts[place - offset] ?? 0) + 1;
    return {
      startTimeUnixNano: `${Math.round(point.start)}000000`,
      timeUnixNano: `${Math.round(point.end)}000000`,
      attributes: Object.entries(point.labels).map(([key, value]) => ({
        key,
        value: { stringValue: value },
      })),
      count: String(point.values.length),
      sum: point.values.reduce((a, b) => a + b, 0),
      min: Math.min(...point.values),
      max: Math.max(...point.values),
      scale: SCALE,
      zeroCount: String(point.values.length - positive.length),
      positive: { offset, bucketCounts: Array.from(counts, (count) => String(count ?? 0)) },
    };
  });
  const metrics = [
    { name: metric, unit: "s", exponentialHistogram: { aggregationTemporality: 1, dataPoints } },
  ];
  return JSON.stringify({ resourceMetrics: [{ scopeMetrics: [{ metrics }] }] });
}
