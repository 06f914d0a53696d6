//! The plan of a run: its settings, and how reports describe them.

use crate::Settings;
use crate::report::machine_info::MachineInfo;

/// Settings and description of a run.
pub struct RunPlan {
    /// Settings of the engine.
    pub settings: Settings,
    /// Target without its password; for a command the program and the number of its arguments.
    pub target: String,
    /// Scheme of the target.
    pub protocol: String,
    /// Description of the schedule.
    pub schedule: String,
    /// The machine that generates the load.
    pub machine: MachineInfo,
}

impl RunPlan {
    /// Whether requests are commands, which use processes instead of connections.
    pub fn is_command(&self) -> bool {
        self.settings.target.is_none()
    }

    /// Whether the server certificate is verified; `None` without TLS.
    pub(crate) fn is_verified(&self) -> Option<bool> {
        let target = self.settings.target.as_ref()?;
        target.is_tls.then_some(target.is_verified)
    }
}

/// Formats a duration.
pub fn format_duration(ns: u64) -> String {
    render::time::duration_text(i64::try_from(ns).unwrap_or(i64::MAX))
}
