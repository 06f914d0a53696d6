//! Reports: Markdown for readers, tab-separated samples for programs.

use std::fmt::Write as _;

/// Samples of one row, one per round.
#[derive(Clone)]
pub(crate) struct Samples {
    pub(crate) name: String,
    pub(crate) remark: &'static str,
    pub(crate) values: Vec<f64>,
}

impl Samples {
    pub(crate) fn new(name: &str, about: &'static str) -> Samples {
        Samples { name: name.to_owned(), remark: about, values: Vec::new() }
    }

    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Median with minimum and maximum in parentheses.
    pub(crate) fn cell(&self) -> String {
        let sorted = self.sorted();
        match (sorted.first(), sorted.last()) {
            (Some(&least), Some(&greatest)) => {
                format!("{} ({}–{})", number(self.median()), number(least), number(greatest))
            }
            _ => "–".to_owned(),
        }
    }
}

/// Three significant digits, or an integer.
pub(crate) fn number(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// A target and its result.
pub(crate) struct ReportTarget {
    pub(crate) description: String,
    pub(crate) promised: String,
    pub(crate) measured: String,
    /// `None`: not measured in this run.
    pub(crate) is_met: Option<bool>,
}

impl ReportTarget {
    pub(crate) fn at_most(
        what: &str,
        limit: f64,
        unit: &str,
        measured: Option<f64>,
    ) -> ReportTarget {
        let promised = format!("≤ {limit} {unit}");
        ReportTarget::compared(what, promised, unit, measured, |found| found <= limit)
    }

    pub(crate) fn at_least(
        what: &str,
        limit: f64,
        unit: &str,
        measured: Option<f64>,
    ) -> ReportTarget {
        let promised = format!("≥ {limit} {unit}");
        ReportTarget::compared(what, promised, unit, measured, |found| found >= limit)
    }

    fn compared(
        what: &str,
        promised: String,
        unit: &str,
        measured: Option<f64>,
        holds: impl Fn(f64) -> bool,
    ) -> ReportTarget {
        ReportTarget {
            description: what.to_owned(),
            promised,
            measured: measured
                .map_or("–".to_owned(), |found| format!("{} {unit}", number(found))),
            is_met: measured.map(holds),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met {
            Some(true) => "met",
            Some(false) => "**NOT MET**",
            None => "**NOT MEASURED**",
        }
    }
}

/// A table: the first columns are text, the others numbers.
pub(crate) struct ReportTable {
    pub(crate) caption: String,
    pub(crate) header: Vec<String>,
    pub(crate) text_columns: usize,
    pub(crate) rows: Vec<Vec<String>>,
    /// Chart of the same values.
    pub(crate) plot: Option<ReportPlot>,
}

/// An image that accompanies a table.
pub(crate) struct ReportPlot {
    /// File name in the directory of the report.
    pub(crate) file: &'static str,
    /// Alternative text.
    pub(crate) alt: String,
    pub(crate) svg: String,
}

impl ReportTable {
    pub(crate) fn new(caption: &str, text_columns: usize, header: &[&str]) -> ReportTable {
        ReportTable {
            caption: caption.to_owned(),
            header: header.iter().map(|&name| name.to_owned()).collect(),
            text_columns,
            rows: Vec::new(),
            plot: None,
        }
    }

    /// A table of the same contenders over several data sets: name, remark, then a column per data
    /// set.
    pub(crate) fn of_samples(
        caption: &str,
        about: &str,
        columns: &[(&str, &[Samples])],
    ) -> ReportTable {
        let mut table = ReportTable::new(caption, 2, &["", about]);
        table.header.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
        let first = columns.first().map_or(&[][..], |(_, samples)| *samples);
        for (at, row) in first.iter().enumerate() {
            let mut cells = vec![row.name.clone(), row.remark.to_owned()];
            cells.extend(columns.iter().map(|(_, samples)| samples[at].cell()));
            table.rows.push(cells);
        }
        table
    }

    fn markdown(&self, out: &mut String) {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let rule =
            (0..self.header.len()).map(|i| if i < self.text_columns { "---" } else { "--:" });
        if !self.caption.is_empty() {
            let _ = writeln!(out, "{}\n", self.caption);
        }
        let _ = writeln!(out, "{}", line(&self.header));
        let _ = writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let _ = writeln!(out, "{}", line(row));
        }
        out.push('\n');
        if let Some(ReportPlot { file, alt, .. }) = &self.plot {
            let _ = writeln!(out, "![{alt}]({file})\n");
        }
    }
}

/// One comparison: a section of the report and a file of samples.
pub(crate) struct ReportSection {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Method and caveats, in Markdown.
    pub(crate) method: String,
    pub(crate) tables: Vec<ReportTable>,
    pub(crate) targets: Vec<ReportTarget>,
    /// Data set and unit, with its samples.
    pub(crate) samples: Vec<(String, Vec<Samples>)>,
}

impl ReportSection {
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("## {}\n\n{}\n\n", self.title, wrapped(self.method.trim()));
        for table in &self.tables {
            table.markdown(&mut out);
        }
        out
    }

    /// One line per sample.
    pub(crate) fn tsv(&self) -> String {
        let mut out = "set\tcontender\tsample\tvalue\n".to_owned();
        for (set, rows) in &self.samples {
            for row in rows {
                for (sample, value) in row.values.iter().enumerate() {
                    let _ = writeln!(out, "{set}\t{}\t{sample}\t{value:.4}", row.name);
                }
            }
        }
        out
    }
}

const WIDTH: usize = 100;

/// Paragraphs in lines of at most [`WIDTH`] columns; a list keeps its items.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let indent = if line.starts_with("* ") || line.starts_with("- ") { "  " } else { "" };
        let mut columns = 0;
        for word in line.split(' ') {
            let more = word.chars().count();
            if columns > 0 && columns + 1 + more > WIDTH {
                out += "\n";
                out += indent;
                columns = indent.len();
            } else if columns > 0 {
                out.push(' ');
                columns += 1;
            }
            out += word;
            columns += more;
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

/// All targets first.
pub(crate) fn summary<'a>(sections: impl IntoIterator<Item = &'a ReportSection>) -> String {
    let sections: Vec<&ReportSection> = sections.into_iter().collect();
    let mut out = "## Targets\n\n".to_owned();
    let missed =
        |section: &&&ReportSection| section.targets.iter().any(|one| one.is_met != Some(true));
    let missing: Vec<&str> = sections.iter().filter(missed).map(|one| one.title).collect();
    let _ = match missing.is_empty() {
        true => writeln!(out, "All targets are met in this run.\n"),
        false => writeln!(out, "Not all targets are met; see: {}.\n", missing.join("; ")),
    };
    targets_table(sections.iter().flat_map(|section| &section.targets), &mut out);
    out
}

fn targets_table<'a>(targets: impl IntoIterator<Item = &'a ReportTarget>, out: &mut String) {
    let mut table = ReportTable::new("", 1, &["target", "promised", "measured", ""]);
    for one in targets {
        let verdict = one.verdict().to_owned();
        table.rows.push(vec![
            one.description.clone(),
            one.promised.clone(),
            one.measured.clone(),
            verdict,
        ]);
    }
    if !table.rows.is_empty() {
        table.markdown(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_lists_keep_their_items() {
        let text = format!("{}\n\n* {}\n* b", "a ".repeat(80).trim(), "c ".repeat(60).trim());
        let lines: Vec<String> = wrapped(&text).lines().map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.len(), 2 + 1 + 2 + 1);
        assert!(lines[4].starts_with("  c") && lines[5] == "* b", "{lines:?}");
    }
}
