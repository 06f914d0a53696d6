//! Sessions: the share of multi-request sessions that meet slow responses.
//!
//! A session of n requests has none above the p-th percentile with probability p^n, if requests are
//! independent. So 1 − p^n of all sessions meet at least one response above it, and a share s of
//! sessions never exceeds the percentile s^(1/n). Slow responses come in bursts: in reality fewer
//! sessions meet more of them each. Independence is the worst case for the number of affected
//! sessions, not for how badly they are affected.

/// Size of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// Page views per session.
    pub page_views: u32,
    /// Requests per page view.
    pub requests_per_page: u32,
}

impl Sessions {
    /// Requests per session.
    pub fn requests(&self) -> u64 {
        u64::from(self.page_views) * u64::from(self.requests_per_page)
    }

    /// Share of sessions with at least one response above the percentile `p` (0 to 1).
    pub(crate) fn share_above(&self, p: f64) -> f64 {
        // 1 − p^n without cancellation for p near 1.
        -(self.requests() as f64 * p.ln()).exp_m1()
    }

    /// Percentile (0 to 1) that the slowest response of this share of sessions does not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        (share.ln() / self.requests().max(1) as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_session_meets_p99() {
        let sessions = Sessions { page_views: 5, requests_per_page: 40 };
        assert_eq!(sessions.requests(), 200);
        assert!((sessions.share_above(0.99) - (1.0 - 0.99f64.powi(200))).abs() < 1e-12);
        assert!(sessions.share_above(0.99) > 0.86);
        assert!((sessions.share_above(0.9999) - 0.0198).abs() < 1e-4);
        assert_eq!((sessions.share_above(1.0), sessions.share_above(0.0)), (0.0, 1.0));
    }

    #[test]
    fn most_sessions_exceed_p99() {
        let sessions = Sessions { page_views: 5, requests_per_page: 40 };
        assert!((sessions.percentile(0.95) - 0.999_743_57).abs() < 1e-8);
        assert!((sessions.percentile(0.99) - 0.999_949_75).abs() < 1e-8);
        // Inverse of each other.
        assert!((1.0 - sessions.share_above(sessions.percentile(0.95)) - 0.95).abs() < 1e-12);
        let one = Sessions { page_views: 1, requests_per_page: 1 };
        assert_eq!(one.requests(), 1);
        assert!((one.percentile(0.99) - 0.99).abs() < 1e-12);
    }
}
