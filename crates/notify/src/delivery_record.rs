//! Records of the log of deliveries, one line of text each: `docs/formats/deliveries.md`.
//!
//! A line is the CRC-32C of the rest of the line, a keyword and values, separated by single spaces.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hist::Bracket;
use percent_encoding::{percent_decode_str, percent_encode_byte};

use crate::delivery_policy::AttemptVerdict;
use crate::notification::{AlertImpact, Notification, NotificationKey, NotifiedState, Picture};

/// Version of the format.
pub const DELIVERY_LOG_VERSION: u32 = 1;

/// A record. Times are nanoseconds since the Unix epoch; an id is that of a delivery, which is a
/// notification to a contact.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliveryRecord {
    /// A delivery is due.
    Due {
        /// Id of the delivery.
        id: u64,
        /// Time.
        at_ns: i64,
        /// Name of the contact.
        contact: String,
        /// The notification.
        notification: Box<Notification>,
    },
    /// An attempt begins; written before the first byte is sent.
    Attempt {
        /// Id of the delivery.
        id: u64,
        /// Time.
        at_ns: i64,
        /// Whether the receiver recognizes a repeat.
        is_idempotent: bool,
    },
    /// The outcome of an attempt.
    Outcome {
        /// Id of the delivery.
        id: u64,
        /// Time.
        at_ns: i64,
        /// What follows.
        verdict: AttemptVerdict,
        /// Whether the receiver may have the notification and cannot recognize a repeat.
        is_unknown: bool,
        /// Time of the next attempt, for a retry.
        next_ns: i64,
        /// Delivery of the same notification to the failover contact: id and contact.
        failover: Option<(u64, String)>,
        /// Identity of the message at the receiver.
        message_id: Option<String>,
        /// Error, or texts that were cut.
        note: String,
    },
    /// State of an unfinished delivery, instead of its attempts and outcomes.
    Progress {
        /// Id of the delivery.
        id: u64,
        /// Number of attempts.
        attempts: u32,
        /// Number of them whose outcome is unknown.
        unknown_outcomes: u32,
        /// Time of the next attempt.
        next_ns: i64,
        /// Whether the failover contact has the notification.
        has_failed_over: bool,
        /// Last error.
        note: String,
    },
    /// The newest finished notification of an alert to a contact, instead of its other records.
    Finished {
        /// Name of the contact.
        contact: String,
        /// Key of the notification.
        key: NotificationKey,
        /// Time.
        at_ns: i64,
        /// Outcome.
        verdict: AttemptVerdict,
        /// Identity of the message at the receiver.
        message_id: Option<String>,
        /// Error, or texts that were cut.
        note: String,
    },
    /// An alert ended, and contacts that know it are to be told later.
    Ended {
        /// Time.
        at_ns: i64,
        /// What they are to be told.
        notification: Box<Notification>,
    },
}

/// A line is damaged, or of another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a record of the log of deliveries: {0}")]
pub struct RecordError(String);

impl DeliveryRecord {
    /// The line, with its line feed.
    pub fn encode(&self) -> String {
        let line = self.words().join(" ");
        format!("{:08x} {line}\n", crc32c::crc32c(line.as_bytes()))
    }

    /// Reads a line without its line feed.
    pub fn decode(line: &[u8]) -> Result<DeliveryRecord, RecordError> {
        let failed = |cause: &str| RecordError(cause.to_owned());
        let line = str::from_utf8(line).map_err(|_| failed("not UTF-8"))?;
        let (checksum, line) = line.split_once(' ').ok_or_else(|| failed("no checksum"))?;
        if checksum != format!("{:08x}", crc32c::crc32c(line.as_bytes())) {
            return Err(failed("wrong checksum"));
        }
        let mut words = RecordWords(line.split(' '));
        let record = words.record()?;
        match words.0.next() {
            None => Ok(record),
            Some(_) => Err(failed("too many values")),
        }
    }

    fn words(&self) -> Vec<String> {
        match self {
            DeliveryRecord::Due { id, at_ns, contact, notification } => {
                let mut words = vec!["due".to_owned()];
                words.extend([id.to_string(), at_ns.to_string(), encode_text(contact)]);
                words.extend(notification_words(notification));
                words
            }
            DeliveryRecord::Attempt { id, at_ns, is_idempotent } => {
                vec!["attempt".to_owned(), id.to_string(), at_ns.to_string(), flag(*is_idempotent)]
            }
            DeliveryRecord::Outcome {
                id,
                at_ns,
                verdict,
                is_unknown,
                next_ns,
                failover,
                message_id,
                note,
            } => {
                let (failover_id, contact) = failover.as_ref().map(|(id, name)| (id, name)).unzip();
                vec![
                    "outcome".to_owned(),
                    id.to_string(),
                    at_ns.to_string(),
                    verdict.name().to_owned(),
                    flag(*is_unknown),
                    next_ns.to_string(),
                    optional(failover_id.map(u64::to_string)),
                    optional(contact.map(|contact| encode_text(contact))),
                    optional(message_id.as_deref().map(encode_text)),
                    encode_text(note),
                ]
            }
            DeliveryRecord::Progress {
                id,
                attempts,
                unknown_outcomes,
                next_ns,
                has_failed_over,
                note,
            } => vec![
                "progress".to_owned(),
                id.to_string(),
                attempts.to_string(),
                unknown_outcomes.to_string(),
                next_ns.to_string(),
                flag(*has_failed_over),
                encode_text(note),
            ],
            DeliveryRecord::Finished { contact, key, at_ns, verdict, message_id, note } => {
                let mut words = vec!["finished".to_owned(), encode_text(contact)];
                words.extend(key_words(key));
                words.extend([
                    at_ns.to_string(),
                    verdict.name().to_owned(),
                    optional(message_id.as_deref().map(encode_text)),
                    encode_text(note),
                ]);
                words
            }
            DeliveryRecord::Ended { at_ns, notification } => {
                let mut words = vec!["ended".to_owned(), at_ns.to_string()];
                words.extend(notification_words(notification));
                words
            }
        }
    }
}

fn key_words(key: &NotificationKey) -> [String; 3] {
    [encode_text(&key.alert_id), key.transition.to_string(), key.reminder.to_string()]
}

fn notification_words(notification: &Notification) -> Vec<String> {
    let Notification { impact, picture, .. } = notification;
    let mut words = Vec::from(key_words(&notification.key));
    words.extend([
        notification.state.name().to_owned(),
        notification.severity.to_string(),
        encode_text(&notification.name),
        encode_map(&notification.labels),
        encode_map(&notification.annotations),
        notification.since_ns.to_string(),
        notification.at_ns.to_string(),
        encode_text(&notification.criterion),
        optional(impact.requests.map(|n| n.to_string())),
        optional(impact.users.map(|n| n.to_string())),
        encode_text(&notification.unit),
        optional(notification.threshold.map(|value| format!("{value:?}"))),
        optional(
            notification
                .value
                .map(|value| format!("{:?},{:?},{:?}", value.lower, value.estimate, value.upper)),
        ),
        optional(notification.link.as_deref().map(encode_text)),
        optional(notification.notes.as_deref().map(encode_text)),
        list(notification.also_firing.iter().map(|name| encode_text(name))),
        optional(picture.as_ref().map(|picture| {
            format!("{},{}", STANDARD.encode(&picture.png), encode_text(&picture.alt))
        })),
    ]);
    words
}

fn flag(is_set: bool) -> String {
    if is_set { "yes" } else { "no" }.to_owned()
}

/// `-` is absent.
fn optional(word: Option<String>) -> String {
    word.unwrap_or_else(|| "-".to_owned())
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    optional((!words.is_empty()).then(|| words.join(",")))
}

fn encode_map(map: &BTreeMap<String, String>) -> String {
    list(map.iter().map(|(name, value)| format!("{}={}", encode_text(name), encode_text(value))))
}

/// `~` is the empty text.
fn encode_text(text: &str) -> String {
    if text.is_empty() {
        return "~".to_owned();
    }
    let is_alone = text.len() == 1;
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | b',' | b'=' => word.push_str(percent_encode_byte(byte)),
            b'-' | b'~' if is_alone => word.push_str(percent_encode_byte(byte)),
            0x21..=0x7e => word.push(byte.into()),
            _ => word.push_str(percent_encode_byte(byte)),
        }
    }
    word
}

fn decode_text(word: &str) -> Result<String, RecordError> {
    if word == "~" {
        return Ok(String::new());
    }
    let text = percent_decode_str(word).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| RecordError("a text is not UTF-8".to_owned()))
}

/// The values of a line that are not read yet.
struct RecordWords<'a>(std::str::Split<'a, char>);

impl<'a> RecordWords<'a> {
    fn record(&mut self) -> Result<DeliveryRecord, RecordError> {
        Ok(match self.word()? {
            "due" => DeliveryRecord::Due {
                id: self.number()?,
                at_ns: self.number()?,
                contact: self.text()?,
                notification: Box::new(self.notification()?),
            },
            "attempt" => DeliveryRecord::Attempt {
                id: self.number()?,
                at_ns: self.number()?,
                is_idempotent: self.flag()?,
            },
            "outcome" => DeliveryRecord::Outcome {
                id: self.number()?,
                at_ns: self.number()?,
                verdict: self.verdict()?,
                is_unknown: self.flag()?,
                next_ns: self.number()?,
                failover: match (self.optional_number()?, self.optional_text()?) {
                    (Some(id), Some(contact)) => Some((id, contact)),
                    (None, None) => None,
                    _ => return Err(RecordError("half a failover".to_owned())),
                },
                message_id: self.optional_text()?,
                note: self.text()?,
            },
            "progress" => DeliveryRecord::Progress {
                id: self.number()?,
                attempts: self.number()?,
                unknown_outcomes: self.number()?,
                next_ns: self.number()?,
                has_failed_over: self.flag()?,
                note: self.text()?,
            },
            "finished" => DeliveryRecord::Finished {
                contact: self.text()?,
                key: self.key()?,
                at_ns: self.number()?,
                verdict: self.verdict()?,
                message_id: self.optional_text()?,
                note: self.text()?,
            },
            "ended" => DeliveryRecord::Ended {
                at_ns: self.number()?,
                notification: Box::new(self.notification()?),
            },
            other => return Err(RecordError(format!("unknown keyword {other:?}"))),
        })
    }

    fn notification(&mut self) -> Result<Notification, RecordError> {
        Ok(Notification {
            key: self.key()?,
            state: self.name_of(&NotifiedState::ALL, NotifiedState::name)?,
            severity: self.number()?,
            name: self.text()?,
            labels: self.map()?,
            annotations: self.map()?,
            since_ns: self.number()?,
            at_ns: self.number()?,
            criterion: self.text()?,
            impact: AlertImpact {
                requests: self.optional_number()?,
                users: self.optional_number()?,
            },
            unit: self.text()?,
            threshold: self.optional_number()?,
            value: self.bracket()?,
            link: self.optional_text()?,
            notes: self.optional_text()?,
            also_firing: self.items()?.into_iter().map(decode_text).collect::<Result<_, _>>()?,
            picture: self.picture()?,
        })
    }

    fn word(&mut self) -> Result<&'a str, RecordError> {
        self.0.next().ok_or_else(|| RecordError("too few values".to_owned()))
    }

    fn optional_word(&mut self) -> Result<Option<&'a str>, RecordError> {
        Ok(Some(self.word()?).filter(|word| *word != "-"))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, RecordError> {
        parse_number(self.word()?)
    }

    fn optional_number<T: std::str::FromStr>(&mut self) -> Result<Option<T>, RecordError> {
        self.optional_word()?.map(parse_number).transpose()
    }

    fn text(&mut self) -> Result<String, RecordError> {
        decode_text(self.word()?)
    }

    fn optional_text(&mut self) -> Result<Option<String>, RecordError> {
        self.optional_word()?.map(decode_text).transpose()
    }

    fn flag(&mut self) -> Result<bool, RecordError> {
        self.name_of(&[true, false], |is_set| if is_set { "yes" } else { "no" })
    }

    fn verdict(&mut self) -> Result<AttemptVerdict, RecordError> {
        self.name_of(&AttemptVerdict::ALL, AttemptVerdict::name)
    }

    fn name_of<T: Copy>(
        &mut self,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<T, RecordError> {
        let word = self.word()?;
        let found = all.iter().find(|item| name(**item) == word);
        found.copied().ok_or_else(|| RecordError(format!("unknown word {word:?}")))
    }

    fn key(&mut self) -> Result<NotificationKey, RecordError> {
        Ok(NotificationKey {
            alert_id: self.text()?,
            transition: self.number()?,
            reminder: self.number()?,
        })
    }

    fn items(&mut self) -> Result<Vec<&'a str>, RecordError> {
        Ok(self.optional_word()?.map(|word| word.split(',').collect()).unwrap_or_default())
    }

    fn map(&mut self) -> Result<BTreeMap<String, String>, RecordError> {
        let mut map = BTreeMap::new();
        for item in self.items()? {
            let (name, value) =
                item.split_once('=').ok_or_else(|| RecordError("no = in a label".to_owned()))?;
            map.insert(decode_text(name)?, decode_text(value)?);
        }
        Ok(map)
    }

    fn bracket(&mut self) -> Result<Option<Bracket>, RecordError> {
        let items = self.items()?;
        let numbers = items.into_iter().map(parse_number).collect::<Result<Vec<f64>, _>>()?;
        match numbers[..] {
            [] => Ok(None),
            [lower, estimate, upper] => Ok(Some(Bracket { lower, estimate, upper })),
            _ => Err(RecordError("a value does not have three numbers".to_owned())),
        }
    }

    fn picture(&mut self) -> Result<Option<Picture>, RecordError> {
        match self.items()?[..] {
            [] => Ok(None),
            [png, alt] => {
                let png = STANDARD.decode(png);
                let png = png.map_err(|_| RecordError("a picture is not base64".to_owned()))?;
                Ok(Some(Picture { png, alt: decode_text(alt)? }))
            }
            _ => Err(RecordError("a picture does not have two parts".to_owned())),
        }
    }
}

fn parse_number<T: std::str::FromStr>(word: &str) -> Result<T, RecordError> {
    word.parse().map_err(|_| RecordError(format!("{word:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::example_notification;

    #[track_caller]
    fn check(record: &DeliveryRecord) {
        let line = record.encode();
        let bytes = line.strip_suffix('\n').unwrap().as_bytes();
        assert!(!bytes.contains(&b'\n'));
        assert_eq!(DeliveryRecord::decode(bytes).as_ref(), Ok(record), "{line}");
    }

    fn due(notification: Notification) -> DeliveryRecord {
        let (contact, notification) = ("a b".to_owned(), Box::new(notification));
        DeliveryRecord::Due { id: 7, at_ns: -1, contact, notification }
    }

    #[test]
    fn every_text_survives() {
        check(&due(example_notification()));
        for text in ["", "-", "~", "--", "%", "a,b=c d\n\0é🔥", "%2D"] {
            let mut notification = example_notification();
            notification.name = text.to_owned();
            notification.labels = [(text.to_owned(), text.to_owned())].into();
            notification.also_firing = vec![text.to_owned(); 2];
            notification.link = Some(text.to_owned());
            notification.picture = Some(Picture { png: vec![], alt: text.to_owned() });
            check(&due(notification));
        }
    }

    #[test]
    fn an_end_survives() {
        let notification = Box::new(example_notification());
        check(&DeliveryRecord::Ended { at_ns: 7, notification });
    }

    #[test]
    fn absent_values_and_infinite_ones_survive() {
        let mut notification = example_notification();
        (notification.link, notification.notes, notification.picture) = (None, None, None);
        (notification.threshold, notification.value) = (Some(f64::INFINITY), None);
        (notification.labels, notification.also_firing) = Default::default();
        notification.impact = AlertImpact::default();
        check(&due(notification));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_detected() {
        let line = due(example_notification()).encode();
        let line = line.trim_end().as_bytes();
        for bit in 0..line.len() * 8 {
            let mut flipped = line.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(DeliveryRecord::decode(&flipped).is_err(), "bit {bit}");
        }
        for end in 0..line.len() {
            assert!(DeliveryRecord::decode(&line[..end]).is_err(), "cut at {end}");
        }
    }
}
