//! What an observer must know of commands: their names, and which have no reply, several replies,
//! or replies that wait.

use super::captured_arguments::{CapturedArguments, CapturedText};

/// Name of a command whose name has other characters than a name.
const OTHER: &str = "OTHER";

/// Commands whose second argument is part of the name.
const CONTAINERS: &[&str] = &[
    "ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DEBUG", "FUNCTION", "LATENCY", "MEMORY",
    "MODULE", "OBJECT", "PUBSUB", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO",
];

/// Commands that wait for an event.
const WAITS: &[&str] = &[
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "WAIT",
    "WAITAOF",
];

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RedisCommand {
    pub(super) name: CapturedText<40>,
    /// Digest of a script, or name of a function.
    pub(super) script: CapturedText<40>,
    pub(super) is_wait: bool,
    pub(super) effect: CommandEffect,
}

/// What a command does to the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEffect {
    /// One reply.
    None,
    /// One confirmation per channel.
    Subscription(u32),
    /// Confirmations for channels that only the server knows.
    Unsubscription,
    /// CLIENT REPLY.
    RepliesOn,
    RepliesOff,
    SkipReply,
    /// MULTI, EXEC or DISCARD.
    StartTransaction,
    EndTransaction,
    /// HELLO with version 3: replies and pushed messages differ in their mark.
    Version3,
    /// HELLO with version 2.
    Version2,
    /// RESET: as a new connection, with version 2 and without subscriptions.
    Reset,
    /// A stream follows the reply (MONITOR).
    StreamAfterReply,
    /// A stream follows (PSYNC).
    Stream,
}

impl RedisCommand {
    /// The command with these arguments. `None` without an argument.
    pub(super) fn new(arguments: &CapturedArguments) -> Option<RedisCommand> {
        if arguments.count() == 0 {
            return None;
        }
        let mut name = CapturedText::default();
        push_name(arguments.argument(0), &mut name);
        if name.as_bytes().is_empty() {
            name.extend(OTHER.as_bytes());
        } else if arguments.count() > 1 && CONTAINERS.contains(&name.as_str()) {
            let mut second = CapturedText::<40>::default();
            push_name(arguments.argument(1), &mut second);
            if !second.as_bytes().is_empty() {
                name.extend(b" ");
                name.extend(second.as_bytes());
            }
        }
        let mut script = CapturedText::default();
        if matches!(name.as_str(), "EVALSHA" | "EVALSHA_RO" | "FCALL" | "FCALL_RO")
            && arguments
                .argument(1)
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        {
            script.extend(arguments.argument(1));
        }
        let is_wait = match name.as_str() {
            "XREAD" | "XREADGROUP" => (1..arguments.count()).any(|at| arguments.is(at, "BLOCK")),
            name => WAITS.contains(&name),
        };
        let effect = command_effect(name.as_str(), arguments);
        Some(RedisCommand { name, script, is_wait, effect })
    }
}

fn command_effect(name: &str, arguments: &CapturedArguments) -> CommandEffect {
    match name {
        "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" | "UNSUBSCRIBE" | "PUNSUBSCRIBE"
        | "SUNSUBSCRIBE" => match u32::try_from(arguments.count() - 1) {
            Ok(0) | Err(_) => CommandEffect::Unsubscription,
            Ok(channels) => CommandEffect::Subscription(channels),
        },
        "CLIENT REPLY" if arguments.is(2, "OFF") => CommandEffect::RepliesOff,
        "CLIENT REPLY" if arguments.is(2, "SKIP") => CommandEffect::SkipReply,
        "CLIENT REPLY" => CommandEffect::RepliesOn,
        "MULTI" => CommandEffect::StartTransaction,
        "EXEC" | "DISCARD" => CommandEffect::EndTransaction,
        "RESET" => CommandEffect::Reset,
        "HELLO" if arguments.argument(1) == b"3" => CommandEffect::Version3,
        "HELLO" if arguments.argument(1) == b"2" => CommandEffect::Version2,
        "MONITOR" => CommandEffect::StreamAfterReply,
        "PSYNC" | "SYNC" => CommandEffect::Stream,
        _ => CommandEffect::None,
    }
}

/// Adds a name in upper case; nothing if it has other characters than a name.
fn push_name(argument: &[u8], name: &mut CapturedText<40>) {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if argument.len() < 32 && argument.iter().all(is_name) {
        for byte in argument {
            name.extend(&[byte.to_ascii_uppercase()]);
        }
    }
}
