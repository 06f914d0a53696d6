/** Real block I/O: fio (github.com/axboe/fio) reads and writes a small file around the cache of the kernel. */

import { execFile } from "node:child_process";
import { mkdtemp, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Where a file may be. */
const FOLDERS = [tmpdir(), resolve(import.meta.dirname, "..")];
/** Type of a file system that is memory and nothing else (`TMPFS_MAGIC` of linux/magic.h). */
const IN_MEMORY = 0x01021994;
const SECONDS = 4;

/** How many requests it made. */
export interface Requests {
  read: number;
  write: number;
}

/** Runs it for some seconds; a text is the reason why it could not. */
export async function fio(): Promise<Requests | string> {
  if (!(await run("fio", ["--version"]).catch(() => null)))
    return "fio is not installed (apt-get install fio)";
  let why = "";
  for (const parent of FOLDERS) {
    if ((await statfs(parent)).type === IN_MEMORY) {
      why = `${parent} is in memory`;
      continue;
    }
    const folder = await mkdtemp(join(parent, "topdeck-fio-"));
    try {
      // At most so many a second: slow machines do the same as quick ones.
      const job = [
        "--name=topdeck",
        `--directory=${folder}`,
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
      const told = JSON.parse(stdout.slice(stdout.indexOf("{"))) as {
        jobs: { read: { total_ios: number }; write: { total_ios: number } }[];
      };
      return { read: told.jobs[0]!.read.total_ios, write: told.jobs[0]!.write.total_ios };
    } catch (error) {
      why = `fio cannot do direct I/O in ${folder}: ${error instanceof Error ? error.message : String(error)}`;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  return why;
}
