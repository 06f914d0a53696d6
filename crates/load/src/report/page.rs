//! Writes a run as a self-contained HTML page: tables, spectra, and a heatmap over time. It
//! contains no script, and its content security policy allows none.

use std::fmt::Write as _;

use decode::Unit;

use crate::report::error::{ReportError, Result};
use crate::report::run_report::{RunReport, invalid_heading, run_conditions};
use crate::report::statistics::{self, StatisticsTable};
use crate::report::{sessions, spectra};
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::svg::heatmap as svg_heatmap;
use render::svg::{self, escape};

const STYLE: &str = ":root{color-scheme:light dark}body{margin:0;padding:24px;background:#ffffff;color:#24292f;font:15px/1.5 \
                     system-ui,-apple-system,'Segoe UI','DejaVu \
                     Sans',sans-serif}main{max-width:960px;margin:0 \
                     auto}h1{font-size:22px;margin:0;overflow-wrap:anywhere}h2{font-size:17px;margin:28px \
                     0 8px}p{margin:4px 0}.quiet{color:#57606a;font-size:13px}.alarm{border:2px \
                     solid #cf222e;border-radius:6px;padding:12px 16px;margin:0 0 \
                     20px;background:#ffebe9}.alarm strong{color:#a40e26}.alarm \
                     ul{margin:6px 0 0;padding-left:20px}.wide{overflow-x:auto}.wide+.wide{margin-top:16px}table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{text-align:right;padding:3px \
                     0 3px 22px;white-space:nowrap;border-bottom:1px solid \
                     #d8dee4}th{font-weight:600;color:#57606a}th:first-child,td:first-child,td.text{text-align:left}th:first-child,td:first-child{padding-left:0;white-space:pre}td.text{color:#57606a;white-space:normal;min-width:11em}tr.max \
                     td{font-weight:600}.pass{color:#1a7f37;font-weight:600}.fail{color:#cf222e;font-weight:600}figure{margin:24px \
                     0 \
                     0;overflow-x:auto}svg{display:block;max-width:100%;min-width:720px;height:auto}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.quiet,th,td.text{color:#9da7b1}th,td{border-color:#262c34}.alarm{background:#2d1214;border-color:#f85149}.alarm \
                     strong{color:#ff7b72}.pass{color:#3fb950}.fail{color:#ff7b72}}";

/// The run as a page.
pub fn to_html(report: &RunReport) -> Result<String> {
    let (plan, run) = (&report.plan, &report.run);
    let mut body = String::new();
    if !run.invalid_reasons.is_empty() {
        let reasons = run
            .invalid_reasons
            .iter()
            .map(|reason| format!("<li>{}</li>", escape(&reason.to_string())));
        let reasons: String = reasons.collect();
        let _ = writeln!(
            body,
            "<div class=\"alarm\" role=\"alert\"><strong>{}</strong><ul>{reasons}</ul></div>",
            invalid_heading(&run.invalid_reasons)
        );
    }
    let _ = writeln!(body, "<h1>{}</h1>", escape(&plan.target));
    let _ = writeln!(body, "<p>{}</p>", escape(&plan.schedule));
    for line in run_conditions(report) {
        let _ = writeln!(body, "<p class=\"quiet\">{}</p>", escape(&line));
    }
    requirements(&mut body, report);
    heading(&mut body, "Times");
    table(&mut body, &statistics::percentiles(&run.tally));
    if let Some(picture) = spectra::element("spectra-", &run.tally) {
        let _ = writeln!(body, "<figure>{picture}</figure>");
    }
    if let Some(map) = heatmap_of(report)? {
        let picture = svg_heatmap::element("heatmap-", &[map])
            .map_err(|error| ReportError::Unfit(error.to_string()))?;
        let _ = writeln!(body, "<figure>{picture}</figure>");
    }
    if run.per_request.len() > 1 {
        heading(&mut body, "Response times by request");
        table(&mut body, &statistics::per_request(run));
    }
    heading(&mut body, "Outcomes");
    let count_rows =
        statistics::count_rows(&run.tally).into_iter().map(|[name, n, share, text]| {
            (
                String::new(),
                [cell("", &name), cell("", &n), cell("", &share), cell("text", &text)].concat(),
            )
        });
    rows(&mut body, &["", "requests", "share", ""], count_rows);
    for (failure, text) in statistics::first_errors(run) {
        let _ = writeln!(body, "<p>First {failure}: {}</p>", escape(text));
    }
    let facts = statistics::facts(run, plan)
        .into_iter()
        .map(|(name, text)| (String::new(), [cell("", name), cell("text", &text)].concat()));
    heading(&mut body, "Generator");
    rows(&mut body, &[], facts);
    session(&mut body, report);
    if let Some(push) = &report.push {
        let _ = writeln!(body, "<p class=\"quiet\">{}</p>", escape(&push.text()));
    }
    let title = escape(&format!("{} – topdeck load", plan.target));
    let styles = [svg::STYLE, &svg_heatmap::style(), spectra::STYLE, STYLE].concat();
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<title>{title}</title>\n<style>{styles}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    ))
}

fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(text));
}

fn cell(class: &str, text: &str) -> String {
    match class {
        "" => format!("<td>{}</td>", escape(text)),
        class => format!("<td class=\"{class}\">{}</td>", escape(text)),
    }
}

/// A table; each row has a class and cells.
fn rows(out: &mut String, head: &[&str], rows: impl Iterator<Item = (String, String)>) {
    let _ = write!(out, "<div class=\"wide\"><table>");
    if !head.is_empty() {
        let names: String = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
        let _ = writeln!(out, "<thead><tr>{names}</tr></thead>");
    }
    out.push_str("<tbody>\n");
    for (class, cells) in rows {
        let class = if class.is_empty() { class } else { format!(" class=\"{class}\"") };
        let _ = writeln!(out, "<tr{class}>{cells}</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

fn table(out: &mut String, grid: &StatisticsTable) {
    let head: Vec<&str> = grid.head.iter().map(String::as_str).collect();
    let lines = grid.rows.iter().map(|row| {
        let class = if row.first().is_some_and(|name| name == "max") { "max" } else { "" };
        (class.to_owned(), row.iter().map(|text| cell("", text)).collect())
    });
    rows(out, &head, lines);
    if let Some(note) = &grid.note {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(note));
    }
}

fn requirements(out: &mut String, report: &RunReport) {
    if report.requirements.is_empty() {
        return;
    }
    heading(out, "Requirements");
    let lines = report.requirements.iter().map(|one| {
        let class = if one.is_met() { "pass" } else { "fail" };
        let cells = [
            cell("", &one.requirement.expression),
            cell(class, one.label()),
            cell("text", &one.text()),
        ];
        (String::new(), cells.concat())
    });
    rows(out, &[], lines);
}

fn session(out: &mut String, report: &RunReport) {
    let Some(of) = report.sessions else { return };
    let [percentiles, shares] = sessions::rows(of, Some(&report.run.tally.response));
    heading(out, &sessions::title(of));
    let lines = |all: Vec<[String; 3]>| {
        all.into_iter().map(|row| (String::new(), row.map(|text| cell("", &text)).concat()))
    };
    rows(out, &sessions::PERCENTILE_COLUMNS, lines(percentiles));
    rows(out, &sessions::SHARE_COLUMNS, lines(shares));
    let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(sessions::ASSUMPTION));
}

/// Heatmap of response times by the second of the scheduled time.
fn heatmap_of(report: &RunReport) -> Result<Option<Heatmap>> {
    let run = &report.run;
    const SECOND: i64 = 1_000_000_000;
    let Some(last) = run.per_second.keys().last().copied() else { return Ok(None) };
    let mut columns = Vec::new();
    for second in 0..=last {
        let mut values = MergedDistribution::default();
        if let Some(of) = run.per_second.get(&second) {
            values.add(of).map_err(|error| ReportError::Unfit(error.to_string()))?;
        }
        let at = |second: u64| {
            let after = i64::try_from(second).unwrap_or(i64::MAX).saturating_mul(SECOND);
            run.start_unix_ns.saturating_add(after)
        };
        let (from_ns, to_ns) = (second * SECOND as u64, (second + 1) * SECOND as u64);
        // Stalls are sorted and disjoint; long runs have many of both.
        let next = run.stalls.partition_point(|(_, to)| *to <= from_ns);
        let is_stalled = run.stalls.get(next).is_some_and(|(from, _)| *from < to_ns);
        let gaps = is_stalled.then(|| "the generator stalled".to_owned());
        let gaps = gaps.into_iter().collect();
        columns.push(HeatmapColumn { start: at(second), end: at(second + 1), values, gaps });
    }
    Ok(Some(Heatmap {
        title: "Response times by scheduled time".to_owned(),
        unit: Some(Unit::Nanoseconds),
        columns,
        thresholds: Vec::new(),
        warnings: Vec::new(),
    }))
}
