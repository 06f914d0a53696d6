//! A known gap as text.

use model::Gap;
use render::text::escape_control;
use render::time::precise_time_text;

/// Range and reason of a gap.
pub fn gap_text(gap: &Gap) -> String {
    escape_control(&format!(
        "{} to {}: {gap}",
        precise_time_text(gap.start),
        precise_time_text(gap.end)
    ))
}
