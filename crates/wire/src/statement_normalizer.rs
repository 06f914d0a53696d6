//! Statements and routes without their literal values.

use protocol::fingerprint::{RouteTemplates, SqlDialect, StatementFingerprint};
use protocol::observer::StatementSyntax;

use crate::fingerprint_cache::{FingerprintCache, FingerprintCacheCounts, TextHash};

/// Writer of normalized statements, which reuses its memory and remembers texts.
pub(crate) struct StatementNormalizer {
    routes: RouteTemplates,
    cache: FingerprintCache,
    writer: FingerprintWriter,
}

/// Writer of fingerprints without a cache.
#[derive(Default)]
pub(crate) struct FingerprintWriter {
    statement: StatementFingerprint,
    route: String,
}

/// What a fingerprint is made of.
#[derive(Clone, Copy)]
enum FingerprintKind {
    Sql(SqlDialect),
    Path,
}

impl FingerprintKind {
    /// `None` if the text is its own fingerprint.
    fn new(syntax: StatementSyntax, protocol: &str) -> Option<FingerprintKind> {
        match syntax {
            StatementSyntax::Sql => Some(FingerprintKind::Sql(SqlDialect::of_protocol(protocol))),
            StatementSyntax::Path => Some(FingerprintKind::Path),
            StatementSyntax::Name => None,
        }
    }

    fn hash(self, text: &str) -> TextHash {
        let kind = match self {
            FingerprintKind::Path => 0,
            FingerprintKind::Sql(SqlDialect::Postgres) => 1,
            FingerprintKind::Sql(SqlDialect::Mysql) => 2,
            FingerprintKind::Sql(SqlDialect::Cql) => 3,
        };
        TextHash::new(kind, text)
    }
}

impl FingerprintWriter {
    fn write(&mut self, kind: FingerprintKind, text: &str, routes: &RouteTemplates) -> &str {
        match kind {
            FingerprintKind::Sql(dialect) => self.statement.write(text, dialect),
            FingerprintKind::Path => {
                routes.write(text, &mut self.route);
                &self.route
            }
        }
    }
}

impl StatementNormalizer {
    /// A normalizer with a cache of `cache_bytes_max`.
    pub(crate) fn new(routes: RouteTemplates, cache_bytes_max: usize) -> StatementNormalizer {
        let cache = FingerprintCache::new(cache_bytes_max);
        let writer = FingerprintWriter::default();
        StatementNormalizer { routes, cache, writer }
    }

    /// Appends what `statement`, of the protocol with this name, has in common with others.
    pub(crate) fn append(
        &mut self,
        syntax: StatementSyntax,
        statement: &str,
        protocol: &str,
        into: &mut String,
    ) {
        let Some(kind) = FingerprintKind::new(syntax, protocol) else {
            into.push_str(statement);
            return;
        };
        let key = kind.hash(statement);
        if let Some(fingerprint) = self.cache.get(key, statement) {
            into.push_str(fingerprint);
            return;
        }
        let fingerprint = self.writer.write(kind, statement, &self.routes);
        into.push_str(fingerprint);
        self.cache.insert(key, statement, fingerprint);
    }

    /// As [`Self::append`] without a change of the cache. `writer` reads texts that are not in it.
    pub(crate) fn append_unrecorded(
        &self,
        syntax: StatementSyntax,
        statement: &str,
        protocol: &str,
        writer: &mut FingerprintWriter,
        into: &mut String,
    ) {
        let Some(kind) = FingerprintKind::new(syntax, protocol) else {
            into.push_str(statement);
            return;
        };
        let found = self.cache.peek(kind.hash(statement), statement);
        into.push_str(found.unwrap_or_else(|| writer.write(kind, statement, &self.routes)));
    }

    pub(crate) fn cache_counts(&self) -> FingerprintCacheCounts {
        self.cache.counts()
    }

    /// Memory of the cache, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.cache.text_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(syntax: StatementSyntax, statement: &str, protocol: &str, expected: &str) {
        let mut normalizer = StatementNormalizer::new(RouteTemplates::default(), 1 << 20);
        // The third time from the cache.
        for _ in 0..3 {
            let mut text = "Q ".to_owned();
            normalizer.append(syntax, statement, protocol, &mut text);
            assert_eq!(text, format!("Q {expected}"));
            let (mut writer, mut text) = (FingerprintWriter::default(), String::new());
            normalizer.append_unrecorded(syntax, statement, protocol, &mut writer, &mut text);
            assert_eq!(text, expected);
        }
        let hits = u64::from(syntax != StatementSyntax::Name);
        assert_eq!(normalizer.cache_counts().hits, hits);
    }

    #[test]
    fn literal_values_are_removed_by_syntax() {
        check(StatementSyntax::Sql, "select 'a'", "postgres", "select $1");
        check(StatementSyntax::Sql, "select \"a\"", "postgres", "select \"a\"");
        check(StatementSyntax::Sql, "select \"a\"", "mysql", "select $1");
        check(StatementSyntax::Path, "/users/123", "http", "/users/{n}");
        check(StatementSyntax::Name, "GET", "redis", "GET");
    }

    #[test]
    fn a_text_has_a_fingerprint_per_dialect() {
        let mut normalizer = StatementNormalizer::new(RouteTemplates::default(), 1 << 20);
        for _ in 0..3 {
            for (protocol, expected) in [("mysql", "select $1"), ("postgres", "select \"a\"")] {
                let mut text = String::new();
                normalizer.append(StatementSyntax::Sql, "select \"a\"", protocol, &mut text);
                assert_eq!(text, expected);
            }
        }
    }
}
