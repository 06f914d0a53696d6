//! Formatting of byte sizes, in powers of 1,024.

use std::time::Duration;

use crate::value_formatter::count;

/// `16 MiB`, `1.21 KiB`, `7 B`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut at = 0;
    // Without this bound 1,023.996 KiB would be printed as 1024.00 KiB.
    while at + 1 < UNITS.len() && bytes as f64 / 1024f64.powi(at as i32) >= 1023.995 {
        at += 1;
    }
    let value = bytes as f64 / 1024f64.powi(at as i32);
    match value.fract() == 0.0 {
        true => format!("{} {}", count(value as u64), UNITS[at]),
        false => format!("{value:.2} {}", UNITS[at]),
    }
}

/// Byte rate, such as `1.21 MiB/s`.
pub fn format_rate(size: u64, time: Duration) -> String {
    format!("{}/s", format_bytes((size as f64 / time.as_secs_f64().max(1e-9)) as u64))
}

/// Replaces sizes such as "16384 bytes" or "16384 to 65536 bytes" in a text by sizes in a fitting
/// unit.
pub fn humanize_sizes(text: &str) -> String {
    if !text.contains(" bytes") {
        return text.to_owned();
    }
    let words = text.split(' ').map(|word| {
        let number = word.trim_start_matches('(').trim_end_matches(',');
        let size = number.parse().map(format_bytes);
        size.map_or(word.to_owned(), |size| word.replace(number, &size))
    });
    words.collect::<Vec<_>>().join(" ").replace("B bytes", "B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (size, expected) in [
            (0, "0 B"),
            (1023, "1,023 B"),
            (1024, "1 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (1_234_567, "1.18 MiB"),
            (5 << 40, "5 TiB"),
            (5 << 50, "5,120 TiB"),
        ] {
            assert_eq!(format_bytes(size), expected, "{size}");
        }
    }

    #[test]
    fn sizes_in_text_have_units() {
        assert_eq!(
            humanize_sizes("a segment is 1024 bytes, must be 16384 to 4294967296 bytes"),
            "a segment is 1 KiB, must be 16 KiB to 4 GiB"
        );
        assert_eq!(
            humanize_sizes("producers are 70000, must be 1 to 65536"),
            "producers are 70000, must be 1 to 65536"
        );
    }
}
