//! Stalls of the platform as an application experiences them: `topdeck hiccup`.
//!
//! [`DelayStats`] counts wake-up delays, [`JoinedScope`] measures in the scope of a process or a
//! cgroup; both are reported as text and as JSON.

mod delay_stats;
mod joined_scope;
mod report;

pub use delay_stats::DelayStats;
pub use joined_scope::JoinedScope;
pub use report::{stalls_json, stalls_text};
