//! Several roles: the last of the table starts first and stops last, and an error names its role.

use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, RoleEntry, RoleTable, RunningRoles};
use serde::Deserialize;

use crate::node;

const ROLES: RoleTable = &[&RoleEntry::<Source>::ROW, &RoleEntry::<Sink>::ROW];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    /// The key of the first role.
    source: Table,
    /// The key of the second role.
    sink: Table,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    fails: bool,
}

/// Logs each call.
struct LoggingRole(RoleContext);

impl LoggingRole {
    fn start(name: &str, table: &Table, context: &RoleContext) -> Result<LoggingRole, BoxError> {
        (context.log)(intake::LogLevel::Info, &format!("{name} starts"));
        if table.fails {
            Err(format!("{name} fails").into())
        } else {
            Ok(LoggingRole(context.clone()))
        }
    }

    fn reload(&self, name: &str, table: &Table) -> Result<Vec<String>, BoxError> {
        (self.0.log)(intake::LogLevel::Info, &format!("{name} reloads"));
        if table.fails { Err(format!("{name} fails").into()) } else { Ok(vec![name.to_owned()]) }
    }

    fn stop(self, name: &str) -> Result<(), BoxError> {
        (self.0.log)(intake::LogLevel::Info, &format!("{name} stops"));
        Err("the last batch was lost".into())
    }
}

macro_rules! role {
    ($role:ident, $name:ident) => {
        struct $role(LoggingRole);

        impl Role for $role {
            const NAME: &'static str = stringify!($name);
            const KEYS: &'static [&'static str] = &[stringify!($name)];

            type Settings = Tables;

            fn read(document: &Document<'_>) -> Result<Tables, Problems> {
                document.read(Self::KEYS)
            }

            fn validate_settings(settings: &Tables, check: &mut SettingsCheck<'_>) {
                let table = role::settings::TableRef::named(Self::NAME);
                if settings.$name.fails {
                    check.problem(table, "fails", "may not be asked for in a file");
                }
            }

            fn start(settings: &Tables, context: &RoleContext) -> Result<$role, BoxError> {
                LoggingRole::start(Self::NAME, &settings.$name, context).map($role)
            }

            async fn reload(
                &mut self,
                settings: &Tables,
                _: &RoleContext,
            ) -> Result<Vec<String>, BoxError> {
                self.0.reload(Self::NAME, &settings.$name)
            }

            async fn stop(self) -> Result<(), BoxError> {
                self.0.stop(Self::NAME)
            }
        }
    };
}

role!(Source, source);
role!(Sink, sink);

#[tokio::test]
async fn what_takes_measurements_runs_before_what_brings_them_and_longer() {
    let (context, lines) = node::context();
    let settings = node::read(ROLES, "").unwrap();
    let mut roles = RunningRoles::start(&settings, &context).unwrap();
    assert_eq!(roles.reload(&settings, &context).await.unwrap(), ["sink", "source"]);
    let told = roles.stop().await;
    assert_eq!(told, ["source: the last batch was lost", "sink: the last batch was lost"]);
    let expected = [
        "sink starts",
        "source starts",
        "sink reloads",
        "source reloads",
        "source stops",
        "sink stops",
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[test]
fn problems_of_all_roles_are_sorted_by_line() {
    let text = "[sink]\nfails = true\n[source]\nfails = true\n";
    let told = node::read(ROLES, text).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("line")).collect();
    let (two, four) = ("line 2: may not", "line 4: may not");
    assert!(lines[0].starts_with(two) && lines[1].starts_with(four), "{told}");
    let wrong = node::read(ROLES, "[sink]\nfails = 1\n[source]\nfails = 2\n").unwrap_err();
    assert_eq!(wrong.to_string().matches("expected a boolean").count(), 2, "{wrong}");
}
