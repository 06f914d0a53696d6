//! Dates of the proleptic Gregorian calendar in UTC, for formats that have dates as text.
//!
//! Algorithm: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.

const DAY_S: u64 = 86_400;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time in UTC.
pub(super) struct UtcTime {
    year: u64,
    /// From 1.
    month: u64,
    day: u64,
    /// From Thursday, the day of the epoch.
    day_of_week: usize,
    second_of_day: u64,
}

impl UtcTime {
    /// `time_s` is in seconds since the epoch.
    pub(super) fn new(time_s: u64) -> UtcTime {
        let days = time_s / DAY_S;
        // Days since 0000-03-01: eras of 400 years begin there.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let leaps = day_of_era / 1_460 + day_of_era / 146_096;
        let year_of_era = (day_of_era + day_of_era / 36_524 - leaps) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        UtcTime {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            day_of_week: (days % 7) as usize,
            second_of_day: time_s % DAY_S,
        }
    }

    /// Such as `Fri, 02 Jan 2026 03:04:05 +0000`.
    pub(super) fn rfc_2822(&self) -> String {
        let (name, month) = (DAYS[self.day_of_week], MONTHS[(self.month - 1) as usize]);
        format!("{name}, {:02} {month} {} {} +0000", self.day, self.year, self.time())
    }

    /// Such as `2026-01-02T03:04:05Z`.
    pub(super) fn rfc_3339(&self) -> String {
        format!("{:04}-{:02}-{:02}T{}Z", self.year, self.month, self.day, self.time())
    }

    fn time(&self) -> String {
        let second = self.second_of_day;
        format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(time_s: u64, expected: &str) {
        assert_eq!(UtcTime::new(time_s).rfc_2822(), expected);
    }

    /// Expected: `date --utc --rfc-email --date=@SECONDS`.
    #[test]
    fn dates_are_those_of_date() {
        check(0, "Thu, 01 Jan 1970 00:00:00 +0000");
        check(951_782_399, "Mon, 28 Feb 2000 23:59:59 +0000");
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000");
        check(1_767_323_045, "Fri, 02 Jan 2026 03:04:05 +0000");
        check(1_798_761_599, "Thu, 31 Dec 2026 23:59:59 +0000");
        check(4_107_542_400, "Mon, 01 Mar 2100 00:00:00 +0000");
        assert_eq!(UtcTime::new(951_782_400).rfc_3339(), "2000-02-29T00:00:00Z");
    }
}
