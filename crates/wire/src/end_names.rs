//! Names of hosts and services of reports, as numbers, in bounded tables.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use protocol::observer::ObservedProtocol;

/// Names of hosts, and of services. Further ones are [`OTHER`].
pub(crate) const NAMES_MAX: usize = 1_024;
/// Name of hosts and services beyond the limit.
pub(crate) const OTHER: &str = "other";

/// Names by number.
#[derive(Default)]
pub(crate) struct EndNames {
    hosts: NumberedNames<Arc<str>, ()>,
    services: NumberedNames<(Arc<str>, &'static str), &'static ObservedProtocol>,
}

/// Names that something refers to, by number: the others are forgotten.
pub(crate) struct ReferencedNames {
    hosts: Vec<bool>,
    services: Vec<bool>,
}

struct NumberedNames<K, V> {
    names: Vec<Option<(K, V)>>,
    numbers: HashMap<K, u16>,
    free: Vec<u16>,
}

impl EndNames {
    /// Number of a host.
    pub(crate) fn host(&mut self, name: &str) -> u16 {
        if let Some(number) = self.hosts.find(name) {
            return number;
        }
        if self.hosts.is_full() && name != OTHER {
            return self.host(OTHER);
        }
        self.hosts.add(Arc::from(name), ())
    }

    /// Number of a service.
    pub(crate) fn service(&mut self, name: &str, protocol: &'static ObservedProtocol) -> u16 {
        let key = (Arc::<str>::from(name), protocol.name);
        if let Some(number) = self.services.find(&key) {
            return number;
        }
        if self.services.is_full() && name != OTHER {
            return self.service(OTHER, protocol);
        }
        self.services.add(key, protocol)
    }

    /// Name of a host with a number.
    pub(crate) fn of_host(&self, number: u16) -> Arc<str> {
        Arc::clone(&self.hosts.of(number).0)
    }

    /// Whether a number stands for several hosts.
    pub(crate) fn is_other_host(&self, number: u16) -> bool {
        *self.hosts.of(number).0 == *OTHER
    }

    /// Name and protocol of a service with a number.
    pub(crate) fn of_service(&self, number: u16) -> (Arc<str>, &'static ObservedProtocol) {
        let ((name, _), protocol) = self.services.of(number);
        (Arc::clone(name), protocol)
    }

    /// Numbers, none of which is in use yet.
    pub(crate) fn unused(&self) -> ReferencedNames {
        let none = |names: usize| vec![false; names];
        ReferencedNames {
            hosts: none(self.hosts.names.len()),
            services: none(self.services.names.len()),
        }
    }

    /// Forgets the names that are not in use. Their numbers are given to others.
    pub(crate) fn retain(&mut self, used: &ReferencedNames) {
        self.hosts.retain(&used.hosts);
        self.services.retain(&used.services);
    }
}

impl ReferencedNames {
    pub(crate) fn host(&mut self, number: u16) {
        self.hosts[usize::from(number)] = true;
    }

    pub(crate) fn service(&mut self, number: u16) {
        self.services[usize::from(number)] = true;
    }
}

impl<K, V> Default for NumberedNames<K, V> {
    fn default() -> NumberedNames<K, V> {
        NumberedNames { names: Vec::new(), numbers: HashMap::new(), free: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V> NumberedNames<K, V> {
    fn find<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<u16>
    where
        K: Borrow<Q>,
    {
        self.numbers.get(key).copied()
    }

    fn is_full(&self) -> bool {
        self.numbers.len() >= NAMES_MAX
    }

    fn add(&mut self, key: K, value: V) -> u16 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            (self.names.len() - 1) as u16
        });
        self.numbers.insert(key.clone(), number);
        self.names[usize::from(number)] = Some((key, value));
        number
    }

    fn of(&self, number: u16) -> &(K, V) {
        self.names[usize::from(number)].as_ref().expect("BUG: a name in use was forgotten")
    }

    fn retain(&mut self, used: &[bool]) {
        for (number, name) in self.names.iter_mut().enumerate() {
            if !used[number]
                && let Some((key, _)) = name.take()
            {
                self.numbers.remove(&key);
                self.free.push(number as u16);
            }
        }
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
        let zero = names.host("0");
        assert_eq!(&*names.of_host(zero), "0");
        let (one, other) = (names.host("x"), names.host("y"));
        assert_eq!((one, &*names.of_host(one)), (other, OTHER));
        let number = names.service("x", redis);
        let (name, protocol) = names.of_service(number);
        assert_eq!((&*name, protocol.name), (OTHER, "redis"));
        assert_eq!(names.service("a", http), first);
        assert_eq!(names.hosts.names.len(), NAMES_MAX + 1);
        let mut used = names.unused();
        used.host(zero);
        used.service(first);
        names.retain(&used);
        let (x, y) = (names.host("x"), names.host("y"));
        assert_eq!((&*names.of_host(x), &*names.of_host(y)), ("x", "y"));
        assert_eq!((names.host("0"), names.service("a", http)), (zero, first));
        assert_eq!(names.hosts.names.len(), NAMES_MAX + 1);
    }
}
