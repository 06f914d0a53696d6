//! Operations that the user counts as waits, beside those that wait by their protocol.

/// Rules at most.
const RULES_MAX: usize = 64;

/// Statements whose operations wait by design: verb and statement as in the output, with a space
/// between them; the verb alone if there is no statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitRules(Vec<String>);

impl WaitRules {
    /// At most 64 rules, such as `GET /poll/{n}`.
    pub fn new(rules: Vec<String>) -> Result<WaitRules, String> {
        if rules.len() > RULES_MAX {
            return Err(format!("waits limit ({RULES_MAX}) exceeded ({})", rules.len()));
        }
        match rules.iter().find(|rule| rule.trim() != *rule || rule.is_empty()) {
            Some(rule) => Err(format!(
                "wait {rule:?}: expected a verb and a statement as in the output, such as \
                 \"GET /poll/{{n}}\""
            )),
            None => Ok(WaitRules(rules)),
        }
    }

    /// The rule of a statement.
    pub fn rule_of(verb: &str, statement: &str) -> String {
        format!("{verb} {statement}").trim().to_owned()
    }

    pub(crate) fn contains(&self, verb: &str, statement: &str) -> bool {
        self.0.iter().any(|rule| {
            rule.strip_prefix(verb).is_some_and(|rest| match statement {
                "" => rest.is_empty(),
                _ => rest.strip_prefix(' ') == Some(statement),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_verb_and_a_statement() {
        let rules = ["GET /poll/{n}", "BRPOP"].map(str::to_owned).to_vec();
        let rules = WaitRules::new(rules).unwrap();
        let found = [("GET", "/poll/{n}"), ("BRPOP", ""), ("GET", "/poll"), ("GE", "T /poll/{n}")]
            .map(|(verb, statement)| rules.contains(verb, statement));
        assert_eq!(found, [true, true, false, false]);
        for (verb, statement) in [("GET", "/poll/{n}"), ("BRPOP", "")] {
            let rule = WaitRules::rule_of(verb, statement);
            assert!(WaitRules::new(vec![rule]).unwrap().contains(verb, statement));
        }
    }

    #[test]
    fn rules_are_bounded_and_not_empty() {
        assert!(WaitRules::new(vec!["GET".to_owned(); RULES_MAX + 1]).is_err());
        for wrong in ["", " ", "GET /a "] {
            let error = WaitRules::new(vec![wrong.to_owned()]).unwrap_err();
            assert!(error.contains("expected a verb and a statement"), "{error}");
        }
    }
}
