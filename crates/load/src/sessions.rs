//! Sessions: what users meet who make many requests.
//!
//! A session of n requests has none above the p-th percentile with the probability p^n, if each request is slow or not whatever the
//! others were. So 1 − p^n of all sessions meet at least one response above it, and the percentile that a share s of sessions never
//! exceeds is s^(1/n). Slow responses come in bursts, so that in truth fewer sessions meet more of them each: independence is the worst case
//! for how many sessions are hit, and not for how hard.

/// How much a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// Pages that a user opens.
    pub clicks: u32,
    /// Requests that each of them makes.
    pub requests_per_click: u32,
}

impl Sessions {
    /// Requests of a session.
    pub fn requests(&self) -> u64 {
        u64::from(self.clicks) * u64::from(self.requests_per_click)
    }

    /// The share of sessions that meet at least one response above the percentile `p`, from 0 to 1.
    pub fn above(&self, p: f64) -> f64 {
        // 1 − p^n, in a form that keeps its digits where p is nearly 1.
        -(self.requests() as f64 * p.ln()).exp_m1()
    }

    /// The percentile of responses, from 0 to 1, that the worst response of this share of sessions is not above.
    pub fn percentile(&self, share: f64) -> f64 {
        (share.ln() / self.requests().max(1) as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_session_meets_the_99th_percentile() {
        let sessions = Sessions { clicks: 5, requests_per_click: 40 };
        assert_eq!(sessions.requests(), 200);
        assert!((sessions.above(0.99) - (1.0 - 0.99f64.powi(200))).abs() < 1e-12);
        assert!(sessions.above(0.99) > 0.86);
        assert!((sessions.above(0.9999) - 0.0198).abs() < 1e-4);
        assert_eq!((sessions.above(1.0), sessions.above(0.0)), (0.0, 1.0));
    }

    #[test]
    fn what_most_users_see_is_far_beyond_the_99th_percentile() {
        let sessions = Sessions { clicks: 5, requests_per_click: 40 };
        assert!((sessions.percentile(0.95) - 0.999_743_57).abs() < 1e-8);
        assert!((sessions.percentile(0.99) - 0.999_949_75).abs() < 1e-8);
        // Back and forth.
        assert!((1.0 - sessions.above(sessions.percentile(0.95)) - 0.95).abs() < 1e-12);
        let one = Sessions { clicks: 1, requests_per_click: 1 };
        assert_eq!(one.requests(), 1);
        assert!((one.percentile(0.99) - 0.99).abs() < 1e-12);
    }
}
