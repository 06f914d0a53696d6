//! Activity of all series: learned intervals, silence, first data.
//!
//! A series has 16 bytes. Its interval is the median of the times between its arrivals, as polls
//! see them, so it is at least the time between two polls. A series has vanished when nothing
//! arrived for five intervals and for twice the longest recent time between two arrivals: series
//! that send in bursts are not silent between them. Arrivals count, not the times of samples, so
//! that late data of a source that was cut off is no change.
//!
//! An inventory that was stored goes on after a restart. The time in which nobody looked is no
//! silence, and senders have five minutes to come back.

use model::SeriesId;

use super::inventory_file::StoredInventory;

/// Intervals without an arrival after which a series has vanished.
const SILENT_INTERVALS: u32 = 5;
/// Shortest silence that is reported, in seconds.
const SILENCE_MIN_S: u32 = 30;
/// Times between arrivals that must be known before a silence is one.
const LEARNED_MIN: u8 = 3;
/// Part by which the longest time between two arrivals is forgotten with each arrival.
const FORGOTTEN_PART: u16 = 64;
/// Times between arrivals that count at full weight for the median; a later one moves it by a part.
const MEDIAN_STEP_PART: u16 = 8;

/// Time after a restart in which no series vanishes: senders retry at intervals of up to a minute.
const RESUME_GRACE_S: u32 = 300;

pub(super) const NS_PER_S: i64 = 1_000_000_000;

/// What is known of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SeriesArrivals {
    /// End of its newest row, rounded up, in seconds since the Unix epoch; 0 if it has none.
    pub(super) end_s: u32,
    /// Time of the poll that found it.
    pub(super) arrived_s: u32,
    /// Estimated median of the times between arrivals.
    pub(super) interval_s: u16,
    /// The longest one, forgotten slowly.
    pub(super) longest_s: u16,
    /// Known times between arrivals, at most 255.
    pub(super) learned: u8,
    pub(super) is_active: bool,
}

/// Change of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesEvent {
    /// It has data for the first time since the inventory began.
    Appeared,
    /// It has data again after it vanished.
    Returned,
    /// It fell silent.
    Vanished {
        /// End of its newest row, in nanoseconds since the Unix epoch, up to a second too late.
        end_ns: i64,
    },
}

/// Activity of all series by their position.
#[derive(Debug, Default)]
pub struct SeriesInventory {
    activities: Vec<SeriesArrivals>,
    /// Time of the poll before; `None` before the first one.
    polled_s: Option<u32>,
    /// Time of the current poll.
    now_s: u32,
    /// Whether the first poll has ended: its series are no news.
    is_complete: bool,
    /// Whether it was stored, and nobody looked since then.
    is_resumed: bool,
    /// Until then no series vanishes.
    quiet_until_s: u32,
}

impl SeriesInventory {
    /// Begins a poll.
    pub fn begin_poll(&mut self, now_ns: i64) {
        let now_s = seconds(now_ns.div_euclid(NS_PER_S));
        // Nothing was seen in a pause, such as one of the process or of the machine: it counts as
        // no silence. The wall clock may have been set back, too.
        let since_s = self.polled_s.map_or(0, |before| now_s.saturating_sub(before));
        let is_set_back = self.polled_s.is_some_and(|before| now_s < before);
        if since_s > SILENCE_MIN_S || is_set_back {
            for activity in self.activities.iter_mut().filter(|activity| activity.is_active) {
                activity.arrived_s = match is_set_back {
                    true => now_s,
                    false => activity.arrived_s.saturating_add(since_s).min(now_s),
                };
            }
        }
        if is_set_back {
            self.quiet_until_s = self.quiet_until_s.min(now_s.saturating_add(RESUME_GRACE_S));
        }
        if std::mem::take(&mut self.is_resumed) {
            self.quiet_until_s = now_s.saturating_add(RESUME_GRACE_S);
        }
        self.now_s = now_s;
    }

    /// Ends a poll: series that are found from now on are new.
    pub fn end_poll(&mut self) {
        self.polled_s = Some(self.now_s);
        self.is_complete = true;
    }

    /// End of the newest known row of a series, in nanoseconds since the Unix epoch. Of a series
    /// that is not known, the time from which rows count as activity: an hour before now.
    pub fn known_end(&self, position: u32) -> i64 {
        const ACTIVE_S: u32 = 3600;
        let known = self.known(position);
        let end_s = known.map_or(self.now_s.saturating_sub(ACTIVE_S), |activity| activity.end_s);
        i64::from(end_s).saturating_mul(NS_PER_S)
    }

    /// Records what a poll found of a series: the end of a newer row, if there is one.
    pub fn record(&mut self, position: u32, newer_end_ns: Option<i64>) -> Option<SeriesEvent> {
        if self.activities.len() <= position as usize {
            newer_end_ns?;
        }
        let (now_s, is_complete) = (self.now_s, self.is_complete);
        let quiet_until_s = self.quiet_until_s;
        let activity = self.entry(position);
        match newer_end_ns {
            Some(end_ns) => {
                let (is_sending, is_known) = (activity.is_active, activity.end_s > 0);
                activity.arrive(seconds(end_ns.div_euclid(NS_PER_S).saturating_add(1)), now_s);
                let event = if is_known { SeriesEvent::Returned } else { SeriesEvent::Appeared };
                (!is_sending && is_complete).then_some(event)
            }
            None if now_s >= quiet_until_s && activity.is_silent(now_s) => {
                activity.is_active = false;
                let end_ns = i64::from(activity.end_s).saturating_mul(NS_PER_S);
                Some(SeriesEvent::Vanished { end_ns })
            }
            None => None,
        }
    }

    fn entry(&mut self, position: u32) -> &mut SeriesArrivals {
        let at = position as usize;
        if self.activities.len() <= at {
            // Not doubled: there may be very many.
            let more = at.saturating_add(1).saturating_sub(self.activities.len());
            self.activities.reserve_exact(more.max(self.activities.len() / 8));
            self.activities.resize(at.saturating_add(1), SeriesArrivals::default());
        }
        &mut self.activities[at]
    }

    /// Goes on with an inventory that was stored, before the first poll. Series that it does not
    /// have are new.
    pub fn resume(&mut self, stored: &StoredInventory) {
        self.polled_s = Some(stored.polled_s);
        (self.is_complete, self.is_resumed) = (true, true);
    }

    /// Takes what was stored of a series. Returns whether there is something.
    pub fn restore(&mut self, position: u32, id: SeriesId, stored: &StoredInventory) -> bool {
        let found = stored.series.get(&id);
        found.into_iter().for_each(|found| *self.entry(position) = found.arrivals);
        found.is_some()
    }

    /// Time of the last poll.
    pub(super) fn polled_s(&self) -> Option<u32> {
        self.polled_s
    }

    /// What is known of a series that has sent something.
    pub(super) fn known(&self, position: u32) -> Option<&SeriesArrivals> {
        self.activities.get(position as usize).filter(|activity| activity.end_s > 0)
    }

    /// Whether a series sends.
    pub fn is_active(&self, position: u32) -> bool {
        self.activities.get(position as usize).is_some_and(|activity| activity.is_active)
    }

    /// Memory in bytes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        self.activities.capacity() * size_of::<SeriesArrivals>()
    }
}

impl SeriesArrivals {
    fn arrive(&mut self, end_s: u32, now_s: u32) {
        let between_s = now_s.saturating_sub(self.arrived_s);
        let between_s = u16::try_from(between_s).unwrap_or(u16::MAX).max(1);
        if self.is_active {
            self.interval_s = match self.learned {
                0 => between_s,
                _ => {
                    let step = (self.interval_s / MEDIAN_STEP_PART).max(1);
                    match between_s.cmp(&self.interval_s) {
                        std::cmp::Ordering::Less => (self.interval_s - step).max(between_s),
                        std::cmp::Ordering::Equal => self.interval_s,
                        std::cmp::Ordering::Greater => {
                            self.interval_s.saturating_add(step).min(between_s)
                        }
                    }
                }
            };
            self.learned = self.learned.saturating_add(1);
        }
        // Also of a series that had vanished: it is one that pauses.
        if self.arrived_s > 0 {
            self.longest_s = (self.longest_s - self.longest_s / FORGOTTEN_PART).max(between_s);
        }
        self.end_s = self.end_s.max(end_s);
        self.arrived_s = now_s;
        self.is_active = true;
    }

    fn is_silent(&self, now_s: u32) -> bool {
        let usual_s = SILENT_INTERVALS * u32::from(self.interval_s);
        let silence_s = SILENCE_MIN_S.max(usual_s).max(2 * u32::from(self.longest_s));
        self.is_active
            && self.learned >= LEARNED_MIN
            && now_s.saturating_sub(self.arrived_s) > silence_s
    }
}

pub(super) fn seconds(s: i64) -> u32 {
    u32::try_from(s.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL_S: i64 = 15;
    const START_S: i64 = 1_700_000_000;

    /// Polls each 15 s. A series has its times of arrival in seconds since the start.
    fn events(series: &[&dyn Fn(i64) -> bool], polls: i64) -> Vec<(i64, u32, SeriesEvent)> {
        let mut inventory = SeriesInventory::default();
        let mut found = Vec::new();
        for poll in 0..polls {
            let now_s = poll * POLL_S;
            inventory.begin_poll((START_S + now_s) * NS_PER_S);
            for (position, arrives) in (0..).zip(series) {
                let newest = (now_s - POLL_S + 1..=now_s).rev().find(|second| arrives(*second));
                let end_ns = newest.map(|second| (START_S + second) * NS_PER_S);
                let known = inventory.known_end(position);
                let newer = end_ns.filter(|end| *end > known);
                found.extend(
                    inventory.record(position, newer).map(|event| (now_s, position, event)),
                );
            }
            inventory.end_poll();
        }
        found
    }

    fn vanished(found: &[(i64, u32, SeriesEvent)]) -> Vec<(i64, u32)> {
        let is_vanished = |event: &SeriesEvent| matches!(event, SeriesEvent::Vanished { .. });
        found.iter().filter(|it| is_vanished(&it.2)).map(|it| (it.0, it.1)).collect()
    }

    #[test]
    fn a_series_vanishes_after_five_intervals() {
        let fast = |second: i64| second < 600;
        let slow = |second: i64| second < 600 && second % 60 == 0;
        let found = events(&[&fast, &slow], 100);
        // The last arrivals are found at 600 s and 540 s.
        assert_eq!(vanished(&found), [(600 + 75 + 15, 0), (540 + 300 + 15, 1)]);
        let SeriesEvent::Vanished { end_ns } = found.last().expect("an event").2 else {
            panic!("{found:?}")
        };
        assert_eq!(end_ns, (START_S + 541) * NS_PER_S);
    }

    #[test]
    fn bursts_and_rare_series_are_no_changes() {
        // Five minutes of data, three minutes of none.
        let bursts = |second: i64| second % 480 < 300;
        let once = |second: i64| second == 100;
        let twice = |second: i64| second == 100 || second == 200;
        let found = events(&[&bursts, &once, &twice], 400);
        // The first pause cannot be known to be one.
        let early = vanished(&found).into_iter().filter(|(at, _)| *at > 480);
        assert_eq!(early.collect::<Vec<_>>(), []);
        assert!(vanished(&found).iter().all(|(_, position)| *position == 0), "{found:?}");
    }

    #[test]
    fn a_new_series_appears_an_old_one_returns_and_the_first_ones_are_no_news() {
        let old = |_: i64| true;
        let new = |second: i64| second > 300;
        let again = |second: i64| !(300..=900).contains(&second);
        let found = events(&[&old, &new, &again], 100);
        let of = |event: SeriesEvent| -> Vec<(i64, u32)> {
            found.iter().filter(|it| it.2 == event).map(|it| (it.0, it.1)).collect()
        };
        assert_eq!(of(SeriesEvent::Appeared), [(315, 1)]);
        assert_eq!(of(SeriesEvent::Returned), [(915, 2)]);
    }

    #[test]
    fn a_pause_of_the_process_and_a_clock_set_back_are_no_silence() {
        for (pause_s, is_back) in [(7200, false), (3600, true)] {
            let mut inventory = SeriesInventory::default();
            let mut now_s = START_S;
            for _ in 0..20 {
                inventory.begin_poll(now_s * NS_PER_S);
                assert_eq!(inventory.record(0, Some(now_s * NS_PER_S)), None);
                inventory.end_poll();
                now_s += POLL_S;
            }
            now_s += if is_back { -pause_s } else { pause_s };
            inventory.begin_poll(now_s * NS_PER_S);
            assert_eq!(inventory.record(0, None), None);
        }
    }

    /// The clock is a year ahead at the start of the server, until NTP corrects it.
    #[test]
    fn a_clock_that_was_ahead_at_a_restart_does_not_silence_what_vanishes() {
        let mut inventory = SeriesInventory::default();
        let mut vanished = Vec::new();
        let mut poll = |inventory: &mut SeriesInventory, now_s: i64, arrives: bool| {
            inventory.begin_poll(now_s * NS_PER_S);
            let found = inventory.record(0, arrives.then_some(now_s * NS_PER_S));
            vanished.extend(found.map(|_| now_s));
            inventory.end_poll();
        };
        for number in 0..20 {
            poll(&mut inventory, START_S + number * POLL_S, true);
        }
        inventory.is_resumed = true;
        poll(&mut inventory, START_S + 365 * 86_400, false);
        for number in 20..60 {
            poll(&mut inventory, START_S + number * POLL_S, false);
        }
        // The first data of all is no news.
        let grace_s = i64::from(RESUME_GRACE_S);
        assert_eq!(vanished, [START_S + 20 * POLL_S + grace_s]);
    }

    #[test]
    fn a_series_has_sixteen_bytes() {
        assert_eq!(size_of::<SeriesArrivals>(), 16);
        let mut inventory = SeriesInventory::default();
        inventory.begin_poll(START_S * NS_PER_S);
        for position in 0..200_000 {
            inventory.record(position, Some(START_S * NS_PER_S));
        }
        assert!(inventory.memory_bytes() <= 200_000 * 18, "{}", inventory.memory_bytes());
    }
}
