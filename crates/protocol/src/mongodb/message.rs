//! Headers of messages, and names of commands.
//!
//! Source: "MongoDB Wire Protocol" and "OP_MSG" of the MongoDB specifications.

/// Message length, request id, response to, operation code.
pub(super) const HEADER_BYTES: usize = 16;

/// `maxMessageSizeBytes` of servers is 48,000,000.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;

pub(super) const OP_REPLY: i32 = 1;
pub(super) const OP_QUERY: i32 = 2004;
pub(super) const OP_COMPRESSED: i32 = 2012;
pub(super) const OP_MSG: i32 = 2013;
/// OP_UPDATE, OP_INSERT, OP_DELETE and OP_KILL_CURSORS, which have no response.
const OPS_WITHOUT_RESPONSE: [i32; 4] = [2001, 2002, 2006, 2007];
const OP_GET_MORE: i32 = 2005;

/// Flags of OP_MSG.
pub(super) const MORE_TO_COME: u32 = 2;

/// Header of a message.
#[derive(Clone, Copy)]
pub(super) struct MessageHeader {
    pub(super) bytes: u32,
    pub(super) request_id: i32,
    pub(super) response_to: i32,
    pub(super) opcode: i32,
}

impl MessageHeader {
    /// The header at the start of bytes; `None` if it is not plausible.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], is_request: bool) -> Option<MessageHeader> {
        let number = |at: usize| -> i32 {
            i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = MessageHeader {
            bytes: number(0) as u32,
            request_id: number(4),
            response_to: number(8),
            opcode: number(12),
        };
        let is_plausible = (HEADER_BYTES as u32..=MESSAGE_BYTES_MAX).contains(&header.bytes)
            && match header.opcode {
                OP_MSG | OP_COMPRESSED => is_request == (header.response_to == 0),
                OP_REPLY => !is_request,
                OP_QUERY | OP_GET_MORE => is_request,
                opcode => is_request && OPS_WITHOUT_RESPONSE.contains(&opcode),
            };
        is_plausible.then_some(header)
    }

    pub(super) fn has_no_response(&self) -> bool {
        OPS_WITHOUT_RESPONSE.contains(&self.opcode)
    }
}

/// Name of a request before its command is known, or without one.
pub(super) fn opcode_name(opcode: i32) -> &'static str {
    match opcode {
        OP_QUERY => "OP_QUERY",
        OP_GET_MORE => "OP_GET_MORE",
        OP_COMPRESSED => "OP_COMPRESSED",
        _ => "OP_MSG",
    }
}

/// Commands by their names. Others are `command`, so that a client cannot invent names.
pub(super) fn command_name(name: &[u8]) -> &'static str {
    const COMMANDS: [&str; 64] = [
        "abortTransaction",
        "aggregate",
        "authenticate",
        "buildInfo",
        "bulkWrite",
        "collMod",
        "collStats",
        "commitTransaction",
        "connPoolStats",
        "connectionStatus",
        "count",
        "create",
        "createIndexes",
        "createUser",
        "currentOp",
        "dbStats",
        "delete",
        "distinct",
        "drop",
        "dropDatabase",
        "dropIndexes",
        "dropUser",
        "enableSharding",
        "endSessions",
        "explain",
        "find",
        "findAndModify",
        "findandmodify",
        "getCmdLineOpts",
        "getLog",
        "getMore",
        "getParameter",
        "hello",
        "hostInfo",
        "insert",
        "isMaster",
        "ismaster",
        "killCursors",
        "killOp",
        "killSessions",
        "listCollections",
        "listCommands",
        "listDatabases",
        "listIndexes",
        "logout",
        "mapReduce",
        "moveChunk",
        "ping",
        "profile",
        "refreshSessions",
        "renameCollection",
        "replSetGetStatus",
        "replSetHeartbeat",
        "replSetUpdatePosition",
        "saslContinue",
        "saslStart",
        "serverStatus",
        "setParameter",
        "shardCollection",
        "startSession",
        "top",
        "update",
        "usersInfo",
        "validate",
    ];
    let known = COMMANDS.binary_search_by(|command| command.as_bytes().cmp(name));
    known.map_or("command", |at| COMMANDS[at])
}

/// Whether the value of a command is a collection; of others it may be a name of a user.
pub(super) fn has_collection(command: &str) -> bool {
    !matches!(
        command,
        "command"
            | "createUser"
            | "dropUser"
            | "usersInfo"
            | "moveChunk"
            | "enableSharding"
            | "shardCollection"
            | "renameCollection"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name() {
        for name in ["abortTransaction", "findandmodify", "isMaster", "getMore", "validate"] {
            assert_eq!(command_name(name.as_bytes()), name);
        }
        assert_eq!(command_name(b"invented"), "command");
    }
}
