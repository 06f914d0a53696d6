//! Roles from outside: a whole one in a file, and the order of several.

mod heartbeat;
mod node;
mod order;

use role::{RoleEntry, RoleTable};

/// The table of roles of a node: a role is added by its row.
const ROLES: RoleTable = &[&RoleEntry::<heartbeat::HeartbeatRole>::ROW];
