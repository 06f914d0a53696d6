//! Tables of the pages in `docs/formats`, for tests that hold pages to code. Tests of other crates
//! use them too.

use std::fmt::Debug;
use std::str::FromStr;

/// The cells of the first table below a heading, as "## Header", whose head begins like this;
/// without its head, and without backticks around a cell.
pub(crate) fn rows<'a>(page: &'a str, heading: &str, head: &str) -> Vec<Vec<&'a str>> {
    let below = page.split_once(&format!("\n{heading}\n"));
    let (_, below) = below.unwrap_or_else(|| panic!("no heading {heading:?}"));
    let cells = |line: &'a str| {
        let line = line.strip_prefix('|').unwrap_or(line);
        line.strip_suffix('|')
            .unwrap_or(line)
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect()
    };
    let table = below.lines().skip_while(|line| !line.starts_with(head));
    table.take_while(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

/// Holds the table of bytes below a heading to the fields of a layout: name, offset, size. What has
/// no size of its own, as what follows a header, is no field.
#[track_caller]
pub(crate) fn check_fields<N>(page: &str, heading: &str, fields: &[(&str, N, N)])
where
    N: FromStr + PartialEq + Debug,
{
    let told = rows(page, heading, "| offset").into_iter();
    let told = told.filter_map(|row| Some((row[2], row[0].parse().ok()?, row[1].parse().ok()?)));
    assert_eq!(told.collect::<Vec<_>>(), fields, "{heading}");
}
