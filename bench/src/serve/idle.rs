//! Cost of topdeck without clients.

use std::time::Duration;

use anyhow::Result;

use super::server_node::{ServerKind, ServerNode, ServerRole};
use crate::clock::wall_time;

/// Delay between start and measurement.
const SETTLE: Duration = Duration::from_secs(5);

/// Resource use of a program.
#[derive(Clone, Debug)]
pub(crate) struct IdleUsage {
    pub(crate) role: ServerRole,
    /// Percent of one CPU.
    pub(crate) cpu_percent: f64,
    /// Resident memory at the end, its file pages, and the peak since the start.
    pub(crate) resident_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) peak_bytes: u64,
}

impl ServerRole {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ServerRole::Serve => "topdeck serve, host off",
            ServerRole::ServeWithHost => "topdeck serve, default",
            ServerRole::Agent => "topdeck agent, host off",
            ServerRole::AgentWithHost => "topdeck agent, default",
        }
    }
}

/// Measures a program for this long.
pub(crate) fn watch(role: ServerRole, during: Duration) -> Result<IdleUsage> {
    let mut node = ServerNode::start(ServerKind::Topdeck, role)?;
    std::thread::sleep(SETTLE);
    let (cpu, began) = (node.server.cpu()?, wall_time());
    std::thread::sleep(during);
    node.server.check_alive()?;
    let (cpu, passed) = (node.server.cpu()? - cpu, wall_time() - began);
    let cpu_percent = cpu.as_secs_f64() / passed.as_secs_f64() * 100.0;
    let (resident_bytes, file_bytes) =
        (node.server.resident_bytes()?, node.server.resident_file_bytes()?);
    let greatest_bytes = node.server.memory_bytes()?;
    node.stop()?;
    Ok(IdleUsage { role, cpu_percent, resident_bytes, file_bytes, peak_bytes: greatest_bytes })
}
