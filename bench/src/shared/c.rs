//! C programs: topdeck's C ABI (`bindings/c/bench.c`), and Performance Co-Pilot (`peers/pcp`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::add_note;
use crate::Effort;
use crate::journal::program::{build_dir, run_tool, source_dir};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};

/// Operations of `bindings/c/bench.c`, with targets in nanoseconds.
const CALL_KINDS: [(&str, Option<f64>); 6] = [
    ("an empty loop", None),
    ("td_count", Some(1.0)),
    ("td_counter_add", None),
    ("td_hist_record", Some(3.5)),
    ("td_histogram_record", Some(3.5)),
    ("td_stopwatch_start, td_hist_record_since", None),
];

/// Operations of `peers/pcp/pcp.c`.
const PCP: [(&str, &str); 4] = [
    ("add_ns", "mmv_inc, one thread, ns"),
    ("lost_share", "mmv_inc, two threads on one value, share of the updates lost"),
    ("attach_us", "local context and 1,000 names looked up, us"),
    ("read_ns", "pmFetch of 1,000 values, ns per value"),
];

/// Cost in C: inline by the header, and by library calls.
pub(crate) fn abi(effort: &Effort, section: &mut ReportSection) {
    match abi_samples(effort) {
        Err(error) => add_note(section, &format!("The C ABI was not measured: {error:#}.")),
        Ok(threads) => {
            let mut table = ReportTable::new(
                "From C, nanoseconds per operation: median of runs, each the median of batches \
                 on the slower thread (min–max).",
                1,
                &["", "1 thread", "2 threads"],
            );
            let [one, two] = &threads;
            for (at, (name, promised)) in CALL_KINDS.into_iter().enumerate() {
                table.rows.push(vec![name.to_owned(), one[at].cell(), two[at].cell()]);
                for (samples, threads) in [(&one[at], "1 thread"), (&two[at], "2 threads")] {
                    let Some(limit) = promised else { continue };
                    let what = format!("C ABI, {name}, {threads}");
                    section.targets.push(ReportTarget::at_most(
                        &what,
                        limit,
                        "ns",
                        Some(samples.median()),
                    ));
                }
            }
            section.tables.push(table);
            for (samples, threads) in threads.into_iter().zip(["1 thread", "2 threads"]) {
                section.samples.push((format!("from C, {threads}, ns"), samples));
            }
        }
    }
}

fn abi_samples(effort: &Effort) -> Result<[Vec<Samples>; 2]> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // The Makefile determines the build directory of the library, independent of this program's.
    let mut build = Command::new("make");
    run_tool(
        build.arg("-C").arg(root.join("bindings/c")).arg("all").env_remove("CARGO_TARGET_DIR"),
    )?;
    let program = root.join("target/c/bench");
    let mut all = [1, 2].map(|_| CALL_KINDS.map(|(name, _)| Samples::new(name, "")).to_vec());
    for _ in 0..effort.rounds {
        for (samples, threads) in all.iter_mut().zip(["1", "2"]) {
            let said = output(Command::new(&program).args(["300", threads]))?;
            for one in samples {
                let line = said.lines().find_map(|line| line.strip_prefix(one.name.as_str()));
                let line = line.filter(|line| line.starts_with(' '));
                let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
                one.values.push(value.with_context(|| format!("no {} in: {said}", one.name))?);
            }
        }
    }
    Ok(all)
}

/// Performance Co-Pilot: its values in mapped files are the closest relatives.
pub(crate) fn pcp(effort: &Effort, section: &mut ReportSection) {
    match pcp_samples(effort) {
        Err(error) => add_note(section, &format!("Performance Co-Pilot is missing: {error:#}.")),
        Ok(samples) => {
            let mut table = ReportTable::new(
                "Performance Co-Pilot: values in a mapped file, read in the same process by a \
                 local context, without a daemon.",
                1,
                &["", "median (min–max)"],
            );
            let rows = samples.iter().map(|one| vec![one.name.clone(), one.cell()]);
            table.rows.extend(rows);
            section.tables.push(table);
            section.samples.push(("Performance Co-Pilot".to_owned(), samples));
        }
    }
}

fn pcp_samples(effort: &Effort) -> Result<Vec<Samples>> {
    let source = source_dir("pcp");
    let program = build_dir("pcp")?.join("pcp");
    let mut build = Command::new("cc");
    build.arg("-O2").arg(source.join("pcp.c")).arg("-o").arg(&program);
    run_tool(build.args(["-lpcp_mmv", "-lpcp", "-pthread"]))?;
    let mut samples: Vec<Samples> = PCP.iter().map(|(_, what)| Samples::new(what, "")).collect();
    for _ in 0..effort.rounds {
        let updates = if effort.quick { "1000000" } else { "10000000" };
        let said = output(Command::new(&program).arg(updates).arg(source.join("namespace")))?;
        for (one, (name, _)) in samples.iter_mut().zip(PCP) {
            let found = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            one.values.push(found.with_context(|| format!("no {name} in: {said}"))?);
        }
    }
    Ok(samples)
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed, {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
