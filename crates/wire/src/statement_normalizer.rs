//! Statements and routes without their literal values.

use protocol::fingerprint::{RouteTemplates, SqlDialect, StatementFingerprint};
use protocol::observer::StatementSyntax;

/// Writer of normalized statements, which reuses its memory.
#[derive(Default)]
pub(crate) struct StatementNormalizer {
    statement: StatementFingerprint,
    route: String,
}

impl StatementNormalizer {
    /// Appends what `statement`, of the protocol with this name, has in common with others.
    pub(crate) fn append(
        &mut self,
        syntax: StatementSyntax,
        statement: &str,
        protocol: &str,
        routes: &RouteTemplates,
        into: &mut String,
    ) {
        match syntax {
            StatementSyntax::Sql => {
                let dialect = SqlDialect::of_protocol(protocol);
                into.push_str(self.statement.write(statement, dialect));
            }
            StatementSyntax::Path => {
                routes.write(statement, &mut self.route);
                into.push_str(&self.route);
            }
            StatementSyntax::Name => into.push_str(statement),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(syntax: StatementSyntax, statement: &str, protocol: &str, expected: &str) {
        let mut text = "Q ".to_owned();
        let routes = RouteTemplates::default();
        StatementNormalizer::default().append(syntax, statement, protocol, &routes, &mut text);
        assert_eq!(text, format!("Q {expected}"));
    }

    #[test]
    fn literal_values_are_removed_by_syntax() {
        check(StatementSyntax::Sql, "select 'a'", "postgres", "select $1");
        check(StatementSyntax::Sql, "select \"a\"", "postgres", "select \"a\"");
        check(StatementSyntax::Sql, "select \"a\"", "mysql", "select $1");
        check(StatementSyntax::Path, "/users/123", "http", "/users/{n}");
        check(StatementSyntax::Name, "GET", "redis", "GET");
    }
}
