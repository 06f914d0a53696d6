//! What the role may see, and where `pg_stat_statements` is.

use crate::connection_string::ConnectionString;
use crate::session::{PostgresSession, QueryFailure, ResultRow};
use crate::statements;

const RIGHTS_SQL: &str = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";

/// What can be read over a connection.
#[derive(Debug)]
pub(crate) struct ServerRights {
    /// Whether the sessions of other users are visible.
    pub(crate) has_all_stats: bool,
    /// Schema of `pg_stat_statements`, or why it is not read.
    pub(crate) statements_schema: Result<String, String>,
}

impl ServerRights {
    pub(crate) const NONE: ServerRights =
        ServerRights { has_all_stats: false, statements_schema: Err(String::new()) };

    /// Reads both; an error is a lost connection.
    pub(crate) async fn read(
        session: &mut PostgresSession,
        server: &ConnectionString,
    ) -> Result<ServerRights, QueryFailure> {
        let is =
            |rows: &[ResultRow]| rows.first().and_then(|row| row.first()?.as_deref()) == Some("t");
        let has_all_stats = match session.query(RIGHTS_SQL).await {
            Ok(rows) => is(&rows),
            Err(QueryFailure::Rejected(..)) => false,
            Err(broken) => return Err(broken),
        };
        let statements_schema = match session.query(statements::EXTENSION_SQL).await {
            Ok(rows) => find_schema(&rows, server),
            Err(QueryFailure::Rejected(_, text)) => Err(text),
            Err(broken) => return Err(broken),
        };
        Ok(ServerRights { has_all_stats, statements_schema })
    }

    /// Why a collector has nothing to read, and what to do.
    pub(crate) fn remedy(server: &ConnectionString) -> String {
        let user = &server.user;
        format!("{user} may not see other sessions; GRANT pg_monitor TO {user}")
    }
}

fn find_schema(rows: &[ResultRow], server: &ConnectionString) -> Result<String, String> {
    match rows.first().map(|row| &row[..]) {
        None => Err(format!(
            "database {} has no extension pg_stat_statements; add it to \
             shared_preload_libraries, restart the server, and run CREATE EXTENSION \
             pg_stat_statements there",
            server.database
        )),
        Some([Some(schema), Some(version)]) if statements::is_supported(version) => {
            Ok(schema.clone())
        }
        Some(_) => Err("pg_stat_statements is older than 1.8; run ALTER EXTENSION \
                        pg_stat_statements UPDATE"
            .to_owned()),
    }
}

/// What to do about an error of a query, with a separator.
pub(crate) fn query_remedy(code: &str) -> &'static str {
    match code {
        "42501" => "; GRANT pg_monitor to the role",
        "57014" => "; it is read again after a minute",
        "55000" => "; see shared_preload_libraries",
        _ => "",
    }
}
