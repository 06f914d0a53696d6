//! `topdeck serve` and `topdeck agent`, as processes.

mod alert_actions;
mod alert_clearance;
mod alert_history;
mod alert_kills;
mod alert_receiver;
mod alerts;
pub(crate) mod client;
mod command;
mod contact_outage;
mod contacts;
mod damage;
mod data_loss;
mod forward;
mod full_disk;
mod load_sender;
mod mail_server;
mod matrix;
mod network;
mod own_rules;
mod proxy;
mod retire;
mod robustness;
pub(crate) mod server_process;
mod slo;
mod standby;
mod wire;
