//! Value types of the node's settings: durability levels and retention rules.

use journal::Level;
use role::settings::deserialize_text;
use serde::de::{Deserialize, Deserializer, Error as _};
use store::RetentionRule;

use crate::store::retention_rules;

/// Acknowledgement level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckLevelSetting(pub(crate) Level);

/// Retention rule: `base 30d`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RetentionSetting(pub(crate) RetentionRule);

impl Default for AckLevelSetting {
    fn default() -> AckLevelSetting {
        AckLevelSetting(Level::Disk)
    }
}

impl<'de> Deserialize<'de> for AckLevelSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AckLevelSetting, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "memory" => Ok(AckLevelSetting(Level::Memory)),
            "process" => Ok(AckLevelSetting(Level::Process)),
            "disk" => Ok(AckLevelSetting(Level::Disk)),
            other => Err(D::Error::custom(format!(
                "{other:?}: expected \"disk\", \"process\" or \"memory\""
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for RetentionSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RetentionSetting, D::Error> {
        let parse = |text: &str| retention_rules::parse_rule(text).map(RetentionSetting);
        deserialize_text(deserializer, "a quoted rule, as in \"base 30d\"", parse)
    }
}
