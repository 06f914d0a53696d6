//! Values as people write them that only the node has: levels of durability, rules of retention.

use journal::Level;
use role::settings::deserialize_text;
use serde::de::{Deserialize, Deserializer, Error as _};
use store::Keep;

use crate::store::rules;

/// When a sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked(pub(crate) Level);

/// How long rows are kept: `base 30d`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule(pub(crate) Keep);

impl Default for Acked {
    fn default() -> Acked {
        Acked(Level::Disk)
    }
}

impl<'de> Deserialize<'de> for Acked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Acked, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "memory" => Ok(Acked(Level::Memory)),
            "process" => Ok(Acked(Level::Process)),
            "disk" => Ok(Acked(Level::Disk)),
            other => Err(D::Error::custom(format!(
                "{other:?}: expected \"disk\", \"process\" or \"memory\""
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let parse = |text: &str| rules::parse(text).map(Rule);
        deserialize_text(deserializer, "a rule in quotes, as in \"base 30d\"", parse)
    }
}
