//! Names of hosts and services of reports, as numbers, in bounded tables.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::observer::ObservedProtocol;

/// Names of hosts, and of services. Further ones are [`OTHER`].
const NAMES_MAX: usize = 1_024;
/// Name of hosts and services beyond the limit.
pub(crate) const OTHER: &str = "other";

/// Names by number.
#[derive(Default)]
pub(crate) struct EndNames {
    hosts: Vec<Arc<str>>,
    host_numbers: HashMap<Arc<str>, u16>,
    services: Vec<(Arc<str>, &'static ObservedProtocol)>,
    service_numbers: HashMap<(Arc<str>, &'static str), u16>,
}

impl EndNames {
    /// Number of a host.
    pub(crate) fn host(&mut self, name: &str) -> u16 {
        if let Some(number) = self.host_numbers.get(name) {
            return *number;
        }
        if self.hosts.len() >= NAMES_MAX && name != OTHER {
            return self.host(OTHER);
        }
        let (name, number) = (Arc::<str>::from(name), self.hosts.len() as u16);
        self.hosts.push(Arc::clone(&name));
        self.host_numbers.insert(name, number);
        number
    }

    /// Number of a service.
    pub(crate) fn service(&mut self, name: &str, protocol: &'static ObservedProtocol) -> u16 {
        let key = (Arc::<str>::from(name), protocol.name);
        if let Some(number) = self.service_numbers.get(&key) {
            return *number;
        }
        if self.services.len() >= NAMES_MAX && name != OTHER {
            return self.service(OTHER, protocol);
        }
        let number = self.services.len() as u16;
        self.services.push((Arc::clone(&key.0), protocol));
        self.service_numbers.insert(key, number);
        number
    }

    /// Name of a host with a number.
    pub(crate) fn of_host(&self, number: u16) -> Arc<str> {
        Arc::clone(&self.hosts[usize::from(number)])
    }

    /// Name and protocol of a service with a number.
    pub(crate) fn of_service(&self, number: u16) -> (Arc<str>, &'static ObservedProtocol) {
        let (name, protocol) = &self.services[usize::from(number)];
        (Arc::clone(name), protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_rule::find_protocol;

    #[test]
    fn names_beyond_the_limit_share_a_number() {
        let (mut names, http) = (EndNames::default(), find_protocol("http").unwrap());
        let redis = find_protocol("redis").unwrap();
        let first = names.service("a", http);
        assert_ne!(first, names.service("a", redis));
        for n in 0..2 * NAMES_MAX {
            names.host(&n.to_string());
            names.service(&n.to_string(), http);
        }
        assert_eq!(&*names.of_host(names.host_numbers["0"]), "0");
        let (one, other) = (names.host("x"), names.host("y"));
        assert_eq!((one, &*names.of_host(one)), (other, OTHER));
        let number = names.service("x", redis);
        let (name, protocol) = names.of_service(number);
        assert_eq!((&*name, protocol.name), (OTHER, "redis"));
        assert_eq!(names.service("a", http), first);
        assert_eq!(names.hosts.len(), NAMES_MAX + 1);
    }
}
