//! What the statement tables of all services share: the normalizer, and the memory of texts.

use protocol::fingerprint::RouteTemplates;

use crate::statement_normalizer::StatementNormalizer;
use crate::wait_rules::WaitRules;

/// Normalizer and memory of the texts of all statement tables.
pub(crate) struct StatementTexts {
    pub(crate) normalizer: StatementNormalizer,
    pub(crate) waits: WaitRules,
    used_bytes: usize,
    limit: usize,
}

impl StatementTexts {
    /// Tables whose texts have at most `limit` bytes together, and a cache of `cache_bytes_max`.
    pub(crate) fn new(
        routes: RouteTemplates,
        limit: usize,
        cache_bytes_max: usize,
    ) -> StatementTexts {
        let normalizer = StatementNormalizer::new(routes, cache_bytes_max);
        StatementTexts { normalizer, waits: WaitRules::default(), used_bytes: 0, limit }
    }

    /// Reserves memory. Returns whether the limit allows it.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let is_allowed = self.used_bytes.saturating_add(bytes) <= self.limit;
        self.used_bytes += if is_allowed { bytes } else { 0 };
        is_allowed
    }

    /// Returns memory that was reserved.
    pub(crate) fn release(&mut self, bytes: usize) {
        assert!(bytes <= self.used_bytes, "BUG: {bytes} of {} bytes", self.used_bytes);
        self.used_bytes -= bytes;
    }

    /// Bytes of all texts, with those of the cache.
    pub(crate) fn bytes(&self) -> usize {
        self.used_bytes + self.normalizer.text_bytes()
    }
}
