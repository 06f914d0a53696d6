//! Questions without an answer.

use std::collections::VecDeque;

use super::message::MessageHeader;
use crate::observer::{NotMeasuredReason, OperationSink, PacketTime};
use crate::text_pool::TextPool;

/// Questions in flight, at most. Those of a datagram may never be answered: the oldest one is given
/// up for a new one.
const QUESTIONS_MAX: usize = 1024;
/// Clients give up after 5 to 30 s; later, the same question is another one.
const RESEND_MAX_NS: u64 = 60_000_000_000;

/// A question that was seen.
pub(super) struct DnsQuestion {
    pub(super) id: u16,
    pub(super) verb: &'static str,
    pub(super) name: String,
    pub(super) start: PacketTime,
    pub(super) end: PacketTime,
    pub(super) bytes: u64,
}

/// Questions in flight.
#[derive(Default)]
pub(super) struct QuestionTable {
    questions: VecDeque<DnsQuestion>,
    pub(super) texts: TextPool,
    /// Whether a question may not have been captured.
    pub(super) may_miss_questions: bool,
    /// Id of the last transfer, whose response is several messages.
    pub(super) last_transfer: Option<u16>,
}

impl QuestionTable {
    /// Adds a question, unless it is sent again.
    pub(super) fn push(
        &mut self,
        header: &MessageHeader,
        verb: &'static str,
        name: &str,
        (start, end): (PacketTime, PacketTime),
        sink: &mut dyn OperationSink,
    ) {
        if let Some(at) = self.position(header.id, Some((verb, name))) {
            if start.saturating_sub(self.questions[at].start) < RESEND_MAX_NS {
                return;
            }
            let old = self.questions.remove(at);
            old.into_iter().for_each(|old| self.texts.put_back(old.name));
            sink.not_measured(1, NotMeasuredReason::ConnectionEnd);
        }
        if self.questions.len() == QUESTIONS_MAX {
            let oldest = self.questions.pop_front();
            oldest.into_iter().for_each(|oldest| self.texts.put_back(oldest.name));
            sink.not_measured(1, NotMeasuredReason::Limit);
        }
        let mut text = self.texts.take();
        self.texts.push(&mut text, name);
        let question =
            DnsQuestion { id: header.id, verb, name: text, start, end, bytes: header.bytes };
        self.questions.push_back(question);
    }

    fn position(&self, id: u16, question: Option<(&str, &str)>) -> Option<usize> {
        self.questions.iter().position(|one| {
            one.id == id && question.is_none_or(|(verb, name)| one.verb == verb && one.name == name)
        })
    }

    /// Removes a question. A response to an invalid one does not repeat it.
    pub(super) fn take(&mut self, id: u16, question: Option<(&str, &str)>) -> Option<DnsQuestion> {
        let at = self.position(id, question)?;
        self.questions.remove(at)
    }

    pub(super) fn is_known(&self, id: u16) -> bool {
        self.position(id, None).is_some()
    }

    /// Removes all questions, and returns their number.
    pub(super) fn drain(&mut self) -> u64 {
        let questions = self.questions.len();
        self.questions.drain(..).for_each(|question| self.texts.put_back(question.name));
        questions as u64
    }

    pub(super) fn questions(&self) -> impl Iterator<Item = &DnsQuestion> {
        self.questions.iter()
    }

    pub(super) fn memory(&self) -> usize {
        let names: usize = self.questions.iter().map(|question| question.name.capacity()).sum();
        self.questions.capacity() * size_of::<DnsQuestion>() + names + self.texts.memory()
    }
}
