//! What topdeck costs when nobody sends.

use std::time::Duration;

use anyhow::Result;

use super::node::{Node, Role, Who};
use crate::clock::wall_time;

/// After its start, before the clock starts.
const SETTLE: Duration = Duration::from_secs(5);

/// What one program takes of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    pub(crate) role: Role,
    /// Of one processor.
    pub(crate) cpu_percent: f64,
    /// Resident at the end, what of it are pages of files, and the greatest since the start.
    pub(crate) resident_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) greatest_bytes: u64,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Serve => "topdeck serve, host off",
            Role::ServeWithHost => "topdeck serve, default",
            Role::Agent => "topdeck agent, host off",
            Role::AgentWithHost => "topdeck agent, default",
        }
    }
}

/// Looks at a program for so long.
pub(crate) fn watch(role: Role, during: Duration) -> Result<Idle> {
    let mut node = Node::start(Who::Topdeck, role)?;
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
    Ok(Idle { role, cpu_percent, resident_bytes, file_bytes, greatest_bytes })
}
