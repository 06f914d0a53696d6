//! What must hold for any bytes at all: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzzed` repeats the checks on inputs that once broke something.

use query::promql::{LENGTH_MAX, Options, parse, parse_series_labels};

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, Check); 1] = [("promql", promql)];

/// What is read is shown in a way that is read as the same. The first byte chooses what is switched on.
fn promql(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = parse_series_labels(text);
    let options = if choice % 2 == 0 { Options::all() } else { Options::default() };
    let expr = match parse(text, &options) {
        Ok(expr) => expr,
        Err(error) => return drop(error.show(text)),
    };
    let shown = expr.to_string();
    // What is shown may be longer than what was written, and than what is read.
    if shown.len() > LENGTH_MAX {
        return;
    }
    let again = parse(&shown, &options);
    let again = again.unwrap_or_else(|error| panic!("{text:?}: {}", error.show(&shown)));
    // As texts, as NaN is not equal to itself.
    let (expr, again) = (expr.without_places(), again.without_places());
    assert_eq!(format!("{again:?}"), format!("{expr:?}"), "{text:?} is shown as {shown:?}");
}
