//! Role `alerts`: evaluates the rules of rule files over the store, on the schedule of their
//! groups, and submits alerts to the notifier.
//!
//! ```text
//! rule files ─► rule_loader ─► rule_worker ─► sample_writer ─► intake
//!                               │      └────► state_file (alert-states)
//!                               ├─► submitted_alerts ─► notifier_handle ─► notify: contacts
//!                               ├─► history_recorder ─► alert_history ─► history_api, alert_events
//! journal ─► arrival_reader ─► arrival_index ─► rule_worker
//!                               ▼
//!                           published_alerts ─► prometheus_api, alert_list, alertmanager_api: HTTP
//! HTTP ─► silence_store (silences) ─► notify        HTTP ─► received_alerts ─► rule_worker
//! HTTP ─► worker_control (acknowledgements) ─► rule_worker
//! another site ─► primary_site ─► standby ─► notifier_handle     HTTP ─► delivery_api
//!                               └─► site_acknowledgements, site_clearances ─► rule_worker
//! settings, OpenSLO ─► slo_settings ─► slo_service ─► slo_api: HTTP
//! groups evaluated over the past ─► replayed_history ─► alert_history
//! ```
//! `PublishedAlerts` has the snapshot of rules, alerts and silences that routes read.
//! One thread evaluates all groups, one after the other: on schedule, and own rules also when rows
//! of their streams arrived. Others note which series got rows, compute budgets of SLOs, look for
//! series that vanished and what replaced them ([`series_watcher`]), and for rules that select
//! nothing ([`unmatched_rules`]). Rules and states of alerts are those of the crate `rules`, which
//! has no clock, disk or thread. Times are nanoseconds since the Unix epoch.
#![forbid(unsafe_code)]

mod acknowledgement_api;
mod alert_events;
mod alert_evidence;
mod alert_filter;
mod alert_history;
mod alert_link;
mod alert_list;
mod alert_notification;
mod alert_picture;
mod alert_place;
mod alert_selection;
mod alertmanager_api;
mod alertmanager_silences;
mod alertmanager_view;
mod arrival_index;
mod arrival_pace;
mod arrival_reader;
mod clearance_api;
mod contact_api;
mod delivery_api;
mod error;
mod forecast_text;
mod group_metrics;
mod history_api;
mod history_entry;
mod history_recorder;
mod inventory_store;
mod json_body;
mod message_templates;
mod missing_series;
mod notifier_handle;
mod notifier_status;
mod picture_api;
mod primary_site;
mod prometheus_api;
mod published_alerts;
mod read_time_budget;
mod received_alerts;
mod received_file;
mod received_log;
mod replayed_history;
mod role;
mod role_thread;
mod rule_loader;
mod rule_paths;
mod rule_reader;
mod rule_worker;
mod sample_writer;
mod series_change_alerts;
mod series_watcher;
mod settings;
mod silence_api;
mod silence_store;
mod site_acknowledgements;
mod site_clearances;
mod slo_api;
mod slo_json;
mod slo_maintenance;
mod slo_service;
mod slo_settings;
mod standby;
mod state_file;
mod store_evaluator;
mod submitted_alerts;
mod submitted_received_alerts;
mod target_health;
#[cfg(test)]
mod test_group;
mod unmatched_rules;
mod worker_control;

pub use alertmanager_silences::parse_alertmanager_silence;
pub use error::{AlertsError, Result};
pub use message_templates::{AlertMessageTemplates, message_template_problems};
pub use received_alerts::ReceivedAlert;
pub use received_file::{DecodedAlerts, ReceivedFileError, decode_received, encode_received};
pub use replayed_history::ReplayedHistory;
pub use role::AlertsRole;
pub use rule_loader::rule_promql_options;
pub use rule_paths::find_rule_files;
pub use rule_reader::{RuleFileTexts, read_rule_file, read_rule_texts};
pub use settings::{AlertTables, AlertsTable};
