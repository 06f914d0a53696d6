//! Roles through the public interface: a complete role in one file, and the order of several.

#[path = "../../../../testdata/extensions/role/heartbeat.rs"]
mod heartbeat;
mod heartbeat_role;
mod node;
mod order;

use role::{RoleEntry, RoleTable};

/// Table of roles of a node; a row adds a role.
const ROLES: RoleTable = &[&RoleEntry::<heartbeat::HeartbeatRole>::ROW];
