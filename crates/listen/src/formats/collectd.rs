//! collectd's binary network protocol. Each value is stored with its own timestamp.
//!
//! ```text
//! c, d, g   fields of the identifier and name of the value, separated by line ends:
//!           cumulative count, count since the previous value, gauge
//! ```

use std::io::Read as _;
use std::net::SocketAddr;

use decode::collectd::{self, CollectdNumber, CollectdSignature, CollectdValue};
use hist::codec::header::Temporality;
use model::{Series, SeriesKind};
use ring::hmac;
use role::settings::{FilePath, SettingsCheck, TableRef, Transport};
use serde::Deserialize;

use crate::line_format::{LineFormat, SocketAddresses};
use crate::line_sink::{LineSink, LineValue};
use crate::series_aggregate::AggregateKind;

/// `[collectd]`: the binary network protocol.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Collectd {
    udp: Vec<SocketAddr>,
    /// File with a line `user: password` per sender, as `AuthFile` of collectd. With it, packets
    /// without a valid signature are rejected.
    auth_file: Option<FilePath>,
}

/// Size limit of the file of users, which is read for each signed packet.
const AUTH_FILE_BYTES_MAX: u64 = 64 << 10;
/// Characters of an unknown user in an error: a packet may have a thousand.
const SHOWN_USER_MAX: usize = 64;

/// Fields of a key.
const FIELDS: usize = 6;

impl Collectd {
    /// Checks the signature of a packet, if that is required.
    fn check_signature(&self, signature: Option<CollectdSignature<'_>>) -> Result<(), String> {
        let Some(path) = &self.auth_file else { return Ok(()) };
        let signature = signature.ok_or("the packet has no signature; set SecurityLevel Sign")?;
        let failure = |error| format!("cannot read {}: {error}", path.display());
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failure)?;
        file.take(AUTH_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failure)?;
        let password = text.lines().find_map(|line| {
            let (user, password) = line.split_once(':')?;
            (user.trim() == signature.user).then(|| password.trim())
        });
        let password = password.ok_or_else(|| {
            let user: String = signature.user.chars().take(SHOWN_USER_MAX).collect();
            format!("{} has no user {user:?}; add a line", path.display())
        })?;
        // Everybody knows the empty password.
        if password.is_empty() {
            let what = "the sender has an empty password in";
            return Err(format!("{what} {}; set one", path.display()));
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, password.as_bytes());
        hmac::verify(&key, signature.signed, signature.hmac)
            .map_err(|_| "the signature is not that of the packet; check the password".to_owned())
    }
}

fn add(value: CollectdValue<'_>, sink: &mut LineSink<'_>) {
    let of = value.identifier;
    let value_name = value.name();
    let name = [
        of.plugin,
        "\n",
        of.type_name,
        "\n",
        of.host,
        "\n",
        of.plugin_instance,
        "\n",
        of.type_instance,
        "\n",
        value_name.as_deref().unwrap_or(""),
    ];
    let number = value.number.as_f64();
    let point = LineValue::Point { time: value.time, value: number };
    match value.number {
        CollectdNumber::Counter(_) | CollectdNumber::Derive(_) => {
            sink.series(b'c', &name, AggregateKind::Points, None);
            sink.value(point, 1.0);
        }
        CollectdNumber::Gauge(value) if value.is_finite() => {
            sink.series(b'g', &name, AggregateKind::Points, None);
            sink.value(point, 1.0);
        }
        CollectdNumber::Gauge(_) => sink.skip(),
        CollectdNumber::Absolute(_) => {
            sink.series(b'd', &name, AggregateKind::Sum, Some(value.time));
            sink.value(LineValue::Number(number), 1.0);
        }
    }
}

impl LineFormat for Collectd {
    const NAME: &'static str = "collectd";
    const TITLE: &'static str = "collectd";

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.listen(table, "udp", Transport::Udp, &self.udp);
        check.file(table, "auth_file", self.auth_file.as_ref());
    }

    fn sockets(&self) -> SocketAddresses {
        SocketAddresses { udp: self.udp.clone(), tcp: Vec::new(), unix: None }
    }

    fn read(&self, packet: &[u8], sink: &mut LineSink<'_>) {
        let parts = collectd::split_signature(packet)
            .and_then(|(signature, parts)| self.check_signature(signature).map(|()| parts));
        let parts = match parts {
            Ok(parts) => parts,
            Err(reason) => return sink.reject(&format_args!("cannot read a packet: {reason}")),
        };
        match collectd::read_parts(parts, &mut |value| add(value, sink)) {
            Ok(summary) => (0..summary.skipped).for_each(|_| sink.skip()),
            Err(reason) => sink.reject(&format_args!("cannot read a packet: {reason}")),
        }
    }

    fn series(&self, kind: u8, name: &str) -> model::Result<Series> {
        let mut fields = [""; FIELDS];
        name.split('\n').zip(&mut fields).for_each(|(text, field)| *field = text);
        let [plugin, type_name, host, plugin_instance, type_instance, value] = fields;
        // As collectd's plugin write_prometheus.
        let mut metric = format!("collectd_{plugin}");
        for part in [type_name, value] {
            if !part.is_empty() && part != plugin {
                metric = metric + "_" + part;
            }
        }
        let kind = match kind {
            b'c' => SeriesKind::Counter(Temporality::Cumulative),
            b'd' => SeriesKind::Counter(Temporality::Delta),
            _ => SeriesKind::Gauge,
        };
        if kind != SeriesKind::Gauge {
            metric.push_str("_total");
        }
        let series = Series::new(metric, kind).with_label("host", host);
        let instances = [("plugin_instance", plugin_instance), ("type_instance", type_instance)];
        let instances = instances.into_iter().filter(|(_, text)| !text.is_empty());
        instances.fold(series, |series, (name, text)| series.with_label(name, text)).validate()
    }
}

#[cfg(test)]
mod tests {
    use model::selector::kind_name;

    use super::*;

    #[test]
    fn series_are_named_as_by_write_prometheus() {
        #[track_caller]
        fn check(kind: u8, key: &str, expected: &str) {
            let series = Collectd::default().series(kind, key).unwrap();
            assert_eq!(format!("{series} {}", kind_name(series.kind())), expected);
        }
        check(
            b'c',
            "interface\nif_octets\nweb-1\neth0\n\nrx",
            "collectd_interface_if_octets_rx_total{host=\"web-1\",plugin_instance=\"eth0\"} \
             cumulative-counter",
        );
        check(
            b'g',
            "memory\nmemory\nweb-1\n\nused\n",
            "collectd_memory{host=\"web-1\",type_instance=\"used\"} gauge",
        );
        check(
            b'd',
            "dns\nqueries\nweb-1\n\n\n",
            "collectd_dns_queries_total{host=\"web-1\"} delta-counter",
        );
    }

    #[test]
    fn signatures_are_checked_if_there_is_a_file_of_users() {
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let path = std::env::temp_dir().join(format!("topdeck-collectd-{number:x}"));
        std::fs::write(&path, "# users\nother: x\nweb: secret\nopen:\n").unwrap();
        let text = format!("auth_file = {path:?}");
        let document = role::settings::Document::parse(&text, std::path::Path::new("/")).unwrap();
        let settings: Collectd = document.read(&["auth_file"]).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let signed = b"webparts";
        let good = hmac::sign(&key, signed);
        let check = |hmac: &[u8], user| {
            settings.check_signature(Some(CollectdSignature { hmac, signed, user }))
        };
        assert_eq!(check(good.as_ref(), "web"), Ok(()));
        assert!(check(good.as_ref(), "other").unwrap_err().contains("check the password"));
        assert!(check(&[0; 32], "web").unwrap_err().contains("check the password"));
        assert!(check(good.as_ref(), "none").unwrap_err().contains("has no user \"none\""));
        let empty = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b""), signed);
        assert!(check(empty.as_ref(), "open").unwrap_err().contains("empty password"));
        assert!(settings.check_signature(None).unwrap_err().contains("SecurityLevel Sign"));
        assert_eq!(Collectd::default().check_signature(None), Ok(()));
        std::fs::remove_file(path).unwrap();
    }
}
