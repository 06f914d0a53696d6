//! Damage of stored data and quarantined inputs, in the status and in the health check.

use intake::{DamageAcknowledgement, Supervisor};

use crate::json::Json::{self, Bool, Integer, List, Object, Text};
use crate::json::integer;

/// Damage found within a day.
pub(crate) fn damage_json(supervisor: &Supervisor) -> Json {
    let report = |report: intake::DamageReport| {
        let is_acknowledged = supervisor.is_acknowledged(&report.location);
        Object(vec![
            ("location", Text(report.location)),
            ("records", integer(report.records)),
            ("remedy", Text(report.remedy)),
            ("since_ns", Integer(report.time.into())),
            ("acknowledged", Bool(is_acknowledged)),
        ])
    };
    List(supervisor.damage().into_iter().map(report).collect())
}

/// Inputs skipped after repeated panics.
pub(crate) fn quarantined_json(supervisor: &Supervisor) -> Json {
    let input = |input: intake::QuarantinedInput| {
        let is_acknowledged = !input.is_retried && supervisor.is_acknowledged(&input.name);
        Object(vec![
            ("input", Text(input.name)),
            ("reason", Text(input.reason)),
            ("since_ns", Integer(input.time.into())),
            ("acknowledged", Bool(is_acknowledged)),
        ])
    };
    List(supervisor.quarantined().into_iter().map(input).collect())
}

/// All acknowledgements.
pub(crate) fn acknowledged_json(supervisor: &Supervisor) -> Json {
    List(supervisor.acknowledged().into_iter().map(acknowledgement_json).collect())
}

pub(crate) fn acknowledgement_json(acknowledgement: DamageAcknowledgement) -> Json {
    let DamageAcknowledgement { location, records, found_at, time, note } = acknowledgement;
    Object(vec![
        ("location", Text(location)),
        ("records", integer(records)),
        ("found_ns", Integer(found_at.into())),
        ("acknowledged_ns", Integer(time.into())),
        ("note", Text(note)),
    ])
}

/// Summary of what is not acknowledged: a line for each damaged location, and for each quarantined
/// input. The health check is public: reasons and remedies are left out.
pub(crate) fn health_message(supervisor: &Supervisor) -> String {
    let mut damage = supervisor.damage();
    damage.retain(|report| !supervisor.is_acknowledged(&report.location));
    let state = if damage.is_empty() { "healthy" } else { "degraded" };
    let mut message = format!("topdeck is {state}\n");
    for report in damage {
        let (location, records) = (report.location, report.records);
        message += &format!(
            "cannot read {location}: damaged ({records} lost); see damage in /v1/status\n"
        );
    }
    for input in supervisor.quarantined() {
        if input.is_retried || !supervisor.is_acknowledged(&input.name) {
            message += &format!("{} is quarantined; see /v1/status\n", input.name);
        }
    }
    message
}
