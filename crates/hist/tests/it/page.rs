//! Parser of tables in the pages of `docs/formats`, for tests that compare pages with code. Other
//! crates' tests use it too.

use std::fmt::Debug;
use std::str::FromStr;

/// The cells of the first table below a heading such as "## Header" whose header row starts with
/// `head`; without the header row, and without backticks around a cell.
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

/// Compares the table of bytes below a heading with the fields of a layout: name, offset, size. A
/// row without a fixed size, such as the part after a header, is not a field.
#[track_caller]
pub(crate) fn check_fields<N>(page: &str, heading: &str, fields: &[(&str, N, N)])
where
    N: FromStr + PartialEq + Debug,
{
    let documented = rows(page, heading, "| offset").into_iter();
    let documented =
        documented.filter_map(|row| Some((row[2], row[0].parse().ok()?, row[1].parse().ok()?)));
    assert_eq!(documented.collect::<Vec<_>>(), fields, "{heading}");
}
