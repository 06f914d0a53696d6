//! Delivery policy: when a failed delivery is repeated, fails over to another contact, and is given
//! up.

use std::time::Duration;

use crate::delivery_result::{DeliveryError, DeliveryReceipt};

/// Delay after the first failure; it doubles with each further one.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Longest delay that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Maximum number of attempts whose outcome is unknown, at a receiver that cannot recognize a
/// repeat: one delivery and one repeat.
pub(crate) const UNKNOWN_OUTCOMES_MAX: u32 = 2;

/// Number of failed attempts, if that many fit into the time, before a notification is given up: an
/// age alone may be that of a clock that was set forward, or of a machine that was suspended.
const GIVE_UP_ATTEMPTS_MIN: u32 = 10;

/// Times of retries of a contact, and its failover contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPolicy {
    /// Name of the contact that also receives what this one did not.
    pub failover: Option<String>,
    /// Age of an undelivered notification at which the failover contact receives it: 5 min by
    /// default. A permanent error passes it on at once.
    pub failover_after: Duration,
    /// Age of an undelivered notification after which it is not sent again, unless there were less
    /// than ten attempts: 6 h by default.
    pub give_up_after: Duration,
    /// Longest delay between two attempts: 5 min by default. A receiver may ask for a longer one.
    pub max_retry_interval: Duration,
}

impl Default for DeliveryPolicy {
    fn default() -> DeliveryPolicy {
        DeliveryPolicy {
            failover: None,
            failover_after: Duration::from_secs(300),
            give_up_after: Duration::from_secs(6 * 3600),
            max_retry_interval: Duration::from_secs(300),
        }
    }
}

/// Consequence of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// The receiver accepted the notification.
    Delivered,
    /// It is sent again.
    Retry,
    /// The receiver rejected it.
    Rejected,
    /// It is not sent again: too old, or a further repeat could be one too many.
    GivenUp,
}

impl AttemptVerdict {
    pub(crate) const ALL: [AttemptVerdict; 4] = [
        AttemptVerdict::Delivered,
        AttemptVerdict::Retry,
        AttemptVerdict::Rejected,
        AttemptVerdict::GivenUp,
    ];

    /// Word of the log of deliveries.
    pub fn name(self) -> &'static str {
        match self {
            AttemptVerdict::Delivered => "delivered",
            AttemptVerdict::Retry => "retry",
            AttemptVerdict::Rejected => "rejected",
            AttemptVerdict::GivenUp => "given-up",
        }
    }
}

impl DeliveryPolicy {
    /// Delay after the first failure, and the maximum; each is halved at random.
    pub(crate) fn backoff(&self) -> (Duration, Duration) {
        (RETRY_INTERVAL.min(self.max_retry_interval), self.max_retry_interval)
    }

    /// Longest delay between two attempts, also if a receiver asks for one.
    pub(crate) fn delay_max(&self) -> Duration {
        self.max_retry_interval.max(RETRY_AFTER_MAX)
    }

    /// Number of failed attempts before a notification is given up.
    fn give_up_attempts(&self) -> u32 {
        let (mut delay, delay_max) = self.backoff();
        let (mut attempts, mut time) = (1, Duration::ZERO);
        while attempts < GIVE_UP_ATTEMPTS_MIN && time + delay <= self.give_up_after {
            (attempts, time) = (attempts + 1, time + delay);
            delay = delay.saturating_mul(2).min(delay_max);
        }
        attempts
    }

    /// Consequence of an attempt `age` after the notification was due. `attempts` and
    /// `unknown_outcomes` include this attempt.
    pub(crate) fn verdict(
        &self,
        result: &Result<DeliveryReceipt, DeliveryError>,
        age: Duration,
        attempts: u32,
        unknown_outcomes: u32,
    ) -> AttemptVerdict {
        let is_old = age >= self.give_up_after && attempts >= self.give_up_attempts();
        match result {
            Ok(_) => AttemptVerdict::Delivered,
            Err(DeliveryError::Permanent { .. }) => AttemptVerdict::Rejected,
            Err(_) if is_old => AttemptVerdict::GivenUp,
            Err(_) if unknown_outcomes >= UNKNOWN_OUTCOMES_MAX => AttemptVerdict::GivenUp,
            Err(_) => AttemptVerdict::Retry,
        }
    }

    /// The contact that receives the notification now, if it is not delivered.
    pub(crate) fn failover_for(&self, verdict: AttemptVerdict, age: Duration) -> Option<&str> {
        let is_due = match verdict {
            AttemptVerdict::Delivered => false,
            AttemptVerdict::Retry => age >= self.failover_after,
            AttemptVerdict::Rejected | AttemptVerdict::GivenUp => true,
        };
        self.failover.as_deref().filter(|_| is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_is_down_is_retried_for_hours_and_the_failover_hears_after_minutes() {
        let policy = DeliveryPolicy { failover: Some("sms".into()), ..DeliveryPolicy::default() };
        let down = Err(DeliveryError::temporary("connection refused"));
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let at = |age| {
            let verdict = policy.verdict(&down, age, 72, 0);
            (verdict, policy.failover_for(verdict, age))
        };
        assert_eq!(at(minutes(4)), (AttemptVerdict::Retry, None));
        assert_eq!(at(minutes(5)), (AttemptVerdict::Retry, Some("sms")));
        assert_eq!(at(minutes(359)), (AttemptVerdict::Retry, Some("sms")));
        assert_eq!(at(minutes(360)), (AttemptVerdict::GivenUp, Some("sms")));
    }

    #[test]
    fn a_rejection_passes_the_notification_on_at_once() {
        let policy = DeliveryPolicy { failover: Some("sms".into()), ..DeliveryPolicy::default() };
        let verdict = policy.verdict(&Err(DeliveryError::permanent("400")), Duration::ZERO, 1, 0);
        assert_eq!(verdict, AttemptVerdict::Rejected);
        assert_eq!(policy.failover_for(verdict, Duration::ZERO), Some("sms"));
    }

    #[test]
    fn a_receiver_without_a_key_gets_one_repeat_at_most() {
        let policy = DeliveryPolicy::default();
        let lost = Err(DeliveryError::unconfirmed("timed out"));
        assert_eq!(policy.verdict(&lost, Duration::ZERO, 1, 1), AttemptVerdict::Retry);
        assert_eq!(policy.verdict(&lost, Duration::ZERO, 2, 2), AttemptVerdict::GivenUp);
    }

    #[test]
    fn a_clock_that_is_set_forward_by_a_day_gives_up_nothing_at_once() {
        let down = Err(DeliveryError::temporary("connection refused"));
        let day = Duration::from_secs(86_400);
        let attempts_at = |give_up_after: u64| {
            let give_up_after = Duration::from_secs(give_up_after);
            let policy = DeliveryPolicy { give_up_after, ..DeliveryPolicy::default() };
            let verdicts = (1..).map(|attempts| policy.verdict(&down, day, attempts, 0));
            verdicts.take_while(|verdict| *verdict == AttemptVerdict::Retry).count() + 1
        };
        // 5 s, 10 s and 20 s after each other.
        assert_eq!([0, 4, 5, 34, 35].map(attempts_at), [1, 1, 2, 3, 4]);
        assert_eq!(attempts_at(6 * 3600), 10);
    }
}
