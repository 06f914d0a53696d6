//! Commands in flight, in their order.

use std::collections::VecDeque;

use super::commands::{CommandEffect, RedisCommand};
use super::resp_parser::RespMessage;
use crate::observer::{
    NotMeasuredReason, ObservedRequest, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// Maximum number of commands in flight whose times are retained; more are counted.
const REQUESTS_MAX: usize = 4096;
/// Capacity that is kept while no command is in flight.
const IDLE_REQUESTS_MAX: usize = 16;

/// Commands in flight.
#[derive(Debug, Default)]
pub(super) struct RedisRequests {
    queue: VecDeque<RedisRequest>,
    /// Commands after those of the queue, which are not measured.
    beyond: u64,
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct RedisRequest {
    pub(super) command: RedisCommand,
    /// Whether it is measured. Otherwise it was counted.
    pub(super) is_measured: bool,
    pub(super) request_start: PacketTime,
    pub(super) request_end: PacketTime,
    pub(super) request_bytes: u64,
    /// Confirmations of a subscription that are left.
    pub(super) confirmations: u32,
    /// First byte of the reply; 0 before it.
    pub(super) response_start: PacketTime,
    pub(super) response_bytes: u64,
}

impl RedisRequests {
    /// Adds a command. Returns why it is not measured.
    pub(super) fn push(&mut self, request: RedisRequest) -> Result<(), NotMeasuredReason> {
        if self.queue.len() == REQUESTS_MAX || self.beyond > 0 {
            self.beyond += 1;
            return if request.is_measured { Err(NotMeasuredReason::Limit) } else { Ok(()) };
        }
        self.queue.push_back(request);
        Ok(())
    }

    pub(super) fn front(&mut self) -> Option<&mut RedisRequest> {
        self.queue.front_mut()
    }

    /// Whether a subscription is in flight.
    pub(super) fn has_subscription(&self) -> bool {
        self.queue.iter().any(|request| request.confirmations > 0)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.beyond == 0
    }

    /// Whether a command beyond those of the queue is in flight.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() == REQUESTS_MAX || self.beyond > 0
    }

    /// Reports and removes the first command, which the reply completes. Returns its effect; `None`
    /// if there is no command.
    pub(super) fn finish(
        &mut self,
        reply: &RespMessage,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> Option<CommandEffect> {
        let Some(request) = self.queue.pop_front() else {
            self.beyond = self.beyond.checked_sub(1)?;
            return Some(CommandEffect::None);
        };
        if self.queue.is_empty() && self.queue.capacity() > IDLE_REQUESTS_MAX {
            self.queue.shrink_to(IDLE_REQUESTS_MAX);
        }
        if request.is_measured {
            request.report(reply, end, sink);
        }
        Some(request.command.effect)
    }

    /// Removes all commands, and counts those that were to be measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        let count = self.queue.iter().filter(|request| request.is_measured).count();
        if count > 0 {
            sink.not_measured(count as u64, reason);
        }
        self.queue.clear();
        self.queue.shrink_to(IDLE_REQUESTS_MAX);
        self.beyond = 0;
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in self.queue.iter().filter(|request| request.is_measured) {
            each(ObservedRequest {
                verb: request.command.name.as_str(),
                statement: request.command.script.as_str(),
                syntax: StatementSyntax::Name,
                is_wait: request.command.is_wait,
                since: request.request_start,
            });
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<RedisRequest>()
    }
}

impl RedisRequest {
    fn report(&self, reply: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        let command = &self.command;
        let is_queued = reply.mark == b'+' && reply.line.as_bytes() == b"QUEUED\r\n";
        let (verb, statement) = match is_queued {
            true => ("QUEUED", command.name.as_str()),
            false => (command.name.as_str(), command.script.as_str()),
        };
        sink.operation(&Operation {
            verb,
            statement,
            syntax: StatementSyntax::Name,
            is_wait: command.is_wait && !is_queued,
            outcome: match reply.is_error {
                true => OperationOutcome::Error(error_class(reply.line.as_bytes())),
                false => OperationOutcome::Ok,
            },
            request_start: self.request_start,
            request_end: self.request_end,
            response_start: if self.response_start == 0 {
                reply.start
            } else {
                self.response_start
            },
            response_end: end,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes + reply.size,
            rows: reply.elements,
            traceparent: None,
        });
    }
}

/// First word of an error, if it is a name in upper case, as that of all errors of Redis.
fn error_class(line: &[u8]) -> &str {
    let length = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_word = line.get(length).is_some_and(u8::is_ascii_whitespace);
    let word = std::str::from_utf8(&line[..length]).unwrap_or("");
    if is_word && !word.is_empty() { word } else { "ERR" }
}
