//! One read of every collector, for `topdeck doctor postgres`.

use std::path::Path;

use net::tls::ClientTls;

use crate::collectors::COLLECTORS;
use crate::connection_string::ConnectionString;
use crate::password::PasswordSource;
use crate::rights::{ServerRights, query_remedy};
use crate::session::{PostgresSession, QueryFailure, RESPONSE_TIMEOUT, SessionSettings};
use crate::{activity, statements};

/// What can be read of a server.
#[derive(Debug)]
pub struct ServerDiagnosis {
    /// Where it is, and its version.
    pub server: String,
    /// Collectors, each with its number of rows, or why it has none.
    pub collectors: Vec<(&'static str, Result<usize, String>)>,
}

impl ServerDiagnosis {
    /// Connects and runs each query once. The error says why topdeck cannot connect.
    pub async fn run(dsn: &str, password_file: Option<&Path>) -> Result<ServerDiagnosis, String> {
        let server = ConnectionString::parse(dsn)?;
        let file = password_file.map(Path::to_owned);
        let settings = SessionSettings {
            server: server.clone(),
            password: PasswordSource { file, pgpass: None },
            tls: ClientTls::default(),
            response_timeout: RESPONSE_TIMEOUT,
        };
        let text = |failure| match failure {
            QueryFailure::Rejected(code, text) => text + query_remedy(&code),
            QueryFailure::Broken(text) => text,
        };
        let mut session = PostgresSession::open(&settings).await.map_err(text)?;
        let rights = ServerRights::read(&mut session, &server).await.map_err(text)?;
        let mut queries = vec![("activity", true, Ok(activity::SQL.to_owned()))];
        for collector in COLLECTORS {
            if let Some(sql) = collector.sql(session.version) {
                queries.push((collector.name, collector.needs_all_stats, Ok(sql)));
            }
        }
        let schema = rights.statements_schema.as_deref();
        let sql = schema.map(statements::sql).map_err(String::clone);
        queries.push(("statements", true, sql));
        let mut collectors = Vec::new();
        for (name, needs_all_stats, sql) in queries {
            let result = match sql {
                Err(reason) => Err(reason),
                Ok(_) if needs_all_stats && !rights.has_all_stats => {
                    Err(ServerRights::remedy(&server))
                }
                Ok(sql) => session.query(&sql).await.map(|rows| rows.len()).map_err(text),
            };
            collectors.push((name, result));
        }
        let server = format!("PostgreSQL {} at {}", session.version_text, server.address());
        session.close().await;
        Ok(ServerDiagnosis { server, collectors })
    }
}
