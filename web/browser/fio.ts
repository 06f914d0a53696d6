/** Block I/O by fio (github.com/axboe/fio): direct reads and writes of a small file. */

import { execFile } from "node:child_process";
import { mkdtemp, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Directories for the file. */
const DIRS = [tmpdir(), resolve(import.meta.dirname, "..")];
/** File system type of tmpfs (`TMPFS_MAGIC` of linux/magic.h). */
const IN_MEMORY = 0x01021994;
const SECONDS = 2;

/** Numbers of requests. */
export interface IoCounts {
  read: number;
  write: number;
}

/** Runs fio; returns the reason if it cannot. */
export async function fio(): Promise<IoCounts | string> {
  if (!(await run("fio", ["--version"]).catch(() => null)))
    return "fio is not installed (apt-get install fio)";
  let why = "";
  for (const parent of DIRS) {
    if ((await statfs(parent)).type === IN_MEMORY) {
      why = `${parent} is in memory`;
      continue;
    }
    const dir = await mkdtemp(join(parent, "topdeck-fio-"));
    try {
      // A limited rate: slow and fast machines do the same.
      const job = [
        "--name=topdeck",
        `--directory=${dir}`,
        "--size=32M",
        "--bs=4k",
        "--rw=randrw",
        "--ioengine=psync",
        "--direct=1",
      ];
      const { stdout } = await run("fio", [
        ...job,
        "--time_based",
        `--runtime=${SECONDS}`,
        "--rate_iops=400,400",
        "--output-format=json",
      ]);
      const report = JSON.parse(stdout.slice(stdout.indexOf("{"))) as {
        jobs: { read: { total_ios: number }; write: { total_ios: number } }[];
      };
      return { read: report.jobs[0]!.read.total_ios, write: report.jobs[0]!.write.total_ios };
    } catch (error) {
      const cause = error instanceof Error ? error.message : String(error);
      why = `fio cannot do direct I/O in ${dir}: ${cause}`;
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }
  return why;
}
