//! Requests without a complete response, and what later requests need to know of earlier ones.

use std::collections::{HashMap, VecDeque};

use super::api::KafkaApi;
use crate::observer::PacketTime;
use crate::text_pool::TextPool;

/// Requests in flight, at most. Clients of Kafka have 5 by default; those built on librdkafka may
/// have more.
const REQUESTS_MAX: usize = 1024;

/// Topic ids with their names, at most, and the size of the names of topics of one request.
const TOPIC_IDS_MAX: usize = 1024;
const TOPICS_BYTES_MAX: usize = 4096;

/// A request that was seen.
pub(super) struct KafkaRequest {
    /// Number of the request on the connection.
    pub(super) number: u64,
    pub(super) correlation_id: i32,
    pub(super) api: &'static KafkaApi,
    pub(super) version: i16,
    /// A token of SASL without a header, after SaslHandshake 0.
    pub(super) is_raw_token: bool,
    /// Whether its last byte was seen.
    pub(super) is_complete: bool,
    /// Whether bytes of it were not captured.
    pub(super) has_gap: bool,
    pub(super) start: PacketTime,
    pub(super) end: PacketTime,
    pub(super) bytes: u64,
    /// Names of topics, joined by commas.
    pub(super) topics: String,
    /// Whether a topic id had no known name.
    pub(super) has_unknown_topic: bool,
    pub(super) max_wait_ms: i64,
    pub(super) min_bytes: i64,
    pub(super) is_read_committed: bool,
    pub(super) session_epoch: i64,
    /// Whether the Fetch before it reached the end of its partitions; `None` if unknown.
    pub(super) is_after_end: Option<bool>,
}

impl KafkaRequest {
    /// Whether the broker may delay a response to this Fetch.
    pub(super) fn may_wait(&self) -> bool {
        self.max_wait_ms > 0 && self.min_bytes > 0
    }
}

/// Requests in flight, and the state of the connection.
pub(super) struct InFlightTable {
    requests: VecDeque<KafkaRequest>,
    next_number: u64,
    /// Requests beyond the limit, whose responses are ignored.
    pub(super) beyond_limit: u64,
    pub(super) texts: TextPool,
    topic_names: HashMap<[u8; 16], Box<str>>,
    topic_names_bytes: usize,
    /// Topics of the fetch session, if it was seen from its start.
    pub(super) session: Option<String>,
    /// Whether the last Fetch reached the end of its partitions; `None` if unknown.
    pub(super) last_fetch_reached_end: Option<bool>,
    /// Whether requests may be tokens of SASL without a header.
    pub(super) expects_raw_tokens: bool,
}

impl InFlightTable {
    pub(super) fn new(has_first_byte: bool) -> InFlightTable {
        InFlightTable {
            requests: VecDeque::new(),
            next_number: 0,
            beyond_limit: 0,
            texts: TextPool::default(),
            topic_names: HashMap::new(),
            topic_names_bytes: 0,
            session: None,
            last_fetch_reached_end: has_first_byte.then_some(false),
            expects_raw_tokens: false,
        }
    }

    /// Adds a request whose header was read, and returns its number; `None` beyond the limit.
    pub(super) fn push(
        &mut self,
        start: PacketTime,
        correlation_id: i32,
        api: &'static KafkaApi,
        version: i16,
    ) -> Option<u64> {
        if self.requests.len() == REQUESTS_MAX {
            self.beyond_limit += 1;
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let topics = self.texts.take();
        self.requests.push_back(KafkaRequest {
            number,
            correlation_id,
            api,
            version,
            is_raw_token: false,
            is_complete: false,
            has_gap: false,
            start,
            end: start,
            bytes: 0,
            topics,
            has_unknown_topic: false,
            max_wait_ms: 0,
            min_bytes: 0,
            is_read_committed: false,
            session_epoch: -1,
            is_after_end: self.last_fetch_reached_end,
        });
        Some(number)
    }

    /// The newest request, if it has this number.
    pub(super) fn newest(&mut self, number: Option<u64>) -> Option<&mut KafkaRequest> {
        self.requests.back_mut().filter(|request| Some(request.number) == number)
    }

    /// Removes the newest request, if it has this number.
    pub(super) fn remove_newest(&mut self, number: Option<u64>) -> bool {
        if self.newest(number).is_none() {
            return false;
        }
        let request = self.requests.pop_back();
        request.into_iter().for_each(|request| self.texts.put_back(request.topics));
        true
    }

    /// Position of the oldest request with this correlation id.
    pub(super) fn position(&self, correlation_id: i32) -> Option<usize> {
        let is_match = |request: &KafkaRequest| {
            request.correlation_id == correlation_id && !request.is_raw_token
        };
        self.requests.iter().position(is_match)
    }

    pub(super) fn oldest(&self) -> Option<&KafkaRequest> {
        self.requests.front()
    }

    /// Removes the oldest request.
    pub(super) fn pop(&mut self) -> Option<KafkaRequest> {
        self.requests.pop_front()
    }

    /// Removes all requests, and returns their number.
    pub(super) fn drain(&mut self) -> u64 {
        let requests = self.requests.len();
        self.requests.drain(..).for_each(|request| self.texts.put_back(request.topics));
        requests as u64
    }

    /// Adds a topic to the newest request.
    pub(super) fn add_topic(&mut self, number: Option<u64>, name: &[u8]) {
        let Some(request) = self.requests.back_mut().filter(|one| Some(one.number) == number)
        else {
            return;
        };
        let Ok(name) = std::str::from_utf8(name) else { return };
        if request.topics.len() + name.len() >= TOPICS_BYTES_MAX {
            return;
        }
        if !request.topics.is_empty() {
            self.texts.push(&mut request.topics, ",");
        }
        self.texts.push(&mut request.topics, name);
    }

    /// Adds a topic by its id to the newest request.
    pub(super) fn add_topic_id(&mut self, number: Option<u64>, id: [u8; 16]) {
        match self.topic_names.remove(&id) {
            Some(name) => {
                self.add_topic(number, name.as_bytes());
                self.topic_names.insert(id, name);
            }
            None => {
                if let Some(request) = self.newest(number) {
                    request.has_unknown_topic = true;
                }
            }
        }
    }

    /// Remembers the name of a topic id.
    pub(super) fn name_topic(&mut self, id: [u8; 16], name: &str) {
        let is_known = self.topic_names.get(&id).is_some_and(|known| **known == *name);
        if is_known || name.is_empty() || self.topic_names.len() == TOPIC_IDS_MAX {
            return;
        }
        self.topic_names_bytes += name.len();
        if let Some(previous) = self.topic_names.insert(id, name.into()) {
            self.topic_names_bytes -= previous.len();
        }
    }

    /// Gives the newest request, which is complete, the topics of its fetch session.
    pub(super) fn resolve_topics(&mut self, number: Option<u64>) {
        let Some(request) = self.requests.back_mut().filter(|one| Some(one.number) == number)
        else {
            return;
        };
        if request.has_unknown_topic || request.has_gap {
            self.texts.clear(&mut request.topics);
        }
        let is_unknown = request.has_unknown_topic || request.has_gap;
        match request.session_epoch {
            0 => self.session = (!is_unknown).then(|| request.topics.clone()),
            epoch if epoch > 0 => {
                let Some(session) = self.session.as_mut().filter(|_| !is_unknown) else {
                    self.session = None;
                    self.texts.clear(&mut request.topics);
                    return;
                };
                for name in request.topics.split(',').filter(|name| !name.is_empty()) {
                    let is_new = session.split(',').all(|known| known != name);
                    if is_new && session.len() + name.len() < TOPICS_BYTES_MAX {
                        session.push_str(if session.is_empty() { "" } else { "," });
                        session.push_str(name);
                    }
                }
                self.texts.clear(&mut request.topics);
                self.texts.push(&mut request.topics, session);
            }
            _ => {}
        }
    }

    /// Forgets what requests or responses that were not captured may have changed.
    pub(super) fn forget_state(&mut self) {
        self.session = None;
        self.last_fetch_reached_end = None;
        self.expects_raw_tokens = false;
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &KafkaRequest> {
        self.requests.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        let topics: usize = self.requests.iter().map(|request| request.topics.capacity()).sum();
        let topic_name = size_of::<([u8; 16], Box<str>)>() + 1;
        self.requests.capacity() * size_of::<KafkaRequest>()
            + topics
            + self.texts.memory()
            + self.topic_names.capacity() * topic_name
            + self.topic_names_bytes
            + self.session.as_ref().map_or(0, String::capacity)
    }
}
