//! Query lists, written as templates: ours, and files of Prometheus' compliance tests.
//!
//! Our list has lines `name = value value …`, and templates in which `<name>` stands for each of
//! these values; values after `~` are known to give different results. A template with several
//! names gives every combination.

/// Query of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComplianceQuery {
    pub(crate) text: String,
    /// Whether the results are known to differ.
    pub(crate) differs: bool,
}

/// Values of the template variables of the compliance tests, which are not part of their files.
const TEMPLATE_VALUES: &str = "\
    range = 1s 15s 1m 5m 15m 1h
    offset = 1m 5m 10m
    simpleAggrOp = sum avg max min count stddev stdvar
    simpleTimeAggrOp = sum avg max min count stddev stdvar absent last
    topBottomOp = topk bottomk
    quantile = -0.5 0.1 0.5 0.75 0.95 0.90 0.99 1 1.5
    arithBinOp = + - * / % ^
    compBinOp = == != < > <= >=
    binOp = + - * / % ^ == != < > <= >=
    simpleMathFunc = abs ceil floor exp sqrt ln log2 log10 round
    extrapolatedRateFunc = delta rate increase
    clampFunc = clamp_min clamp_max
    instantRateFunc = idelta irate
    dateFunc = day_of_month day_of_week days_in_month hour minute month year";

/// Queries of our list.
pub(crate) fn read(list: &str) -> Vec<ComplianceQuery> {
    let (mut names, mut asked) = (TemplateNames::default(), Vec::new());
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') || names.define(line) {
            continue;
        }
        let (differs, template) = match line.strip_prefix('~') {
            Some(template) => (true, template.trim()),
            None => (false, line),
        };
        names.expand(template, &mut |text| asked.push(ComplianceQuery { text, differs }));
    }
    asked
}

/// Queries of a compliance test file; parses only the YAML that occurs there.
pub(crate) fn read_compliance(file: &str) -> Vec<ComplianceQuery> {
    let mut names = TemplateNames::default();
    for line in TEMPLATE_VALUES.lines() {
        assert!(names.define(line.trim()), "BUG: {line:?} is no definition");
    }
    let mut asked = Vec::new();
    for line in file.lines().map(|line| line.trim_start().trim_start_matches("- ").trim()) {
        let Some(template) = line.strip_prefix("query:") else { continue };
        let template = scalar(template.trim()).replace("{{.", "<").replace("}}", ">");
        names.expand(&template, &mut |text| asked.push(ComplianceQuery { text, differs: false }));
    }
    asked
}

/// YAML string, quoted or not.
fn scalar(text: &str) -> String {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    match (within('\''), within('"')) {
        (Some(text), _) => text.replace("''", "'"),
        (_, Some(text)) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        _ => text.to_owned(),
    }
}

/// Template variables.
#[derive(Default)]
struct TemplateNames(Vec<(String, Vec<String>)>);

impl TemplateNames {
    /// Parses a variable definition; returns whether the line is one.
    fn define(&mut self, line: &str) -> bool {
        let Some((name, values)) = line.split_once(" = ") else { return false };
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name {
            let values = values.split_whitespace().map(str::to_owned).collect();
            self.0.push((format!("<{name}>"), values));
        }
        is_name
    }

    fn expand(&self, template: &str, each: &mut dyn FnMut(String)) {
        match self.0.iter().find(|(name, _)| template.contains(name.as_str())) {
            None => each(template.to_owned()),
            Some((name, values)) => {
                for value in values {
                    self.expand(&template.replace(name.as_str(), value), each);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(asked: &[ComplianceQuery]) -> Vec<&str> {
        asked.iter().map(|asked| asked.text.as_str()).collect()
    }

    #[test]
    fn a_template_gives_every_combination() {
        let asked = read("# none\nop = < ==\nn = 1 2\n\na <op> <n>\n~ b{c=\"d\"}\n");
        assert_eq!(texts(&asked), ["a < 1", "a < 2", "a == 1", "a == 2", "b{c=\"d\"}"]);
        assert_eq!(asked.iter().filter(|asked| asked.differs).count(), 1);
    }

    #[test]
    fn files_of_the_compliance_tests_are_read() {
        let file = "test_cases:\n  # Some.\n  - query: '{{.clampFunc}}(a, 2)'\n    variant_args: \
                    ['clampFunc']\n  - query: \"b{c=\\\"d\\\"}\"\n  - # Why.\n    query: 'e'\n  - \
                    query: -1 ^ 2\n";
        let expected = ["clamp_min(a, 2)", "clamp_max(a, 2)", "b{c=\"d\"}", "e", "-1 ^ 2"];
        assert_eq!(texts(&read_compliance(file)), expected);
    }

    #[test]
    fn our_list_is_as_wide_as_that_of_the_compliance_tests() {
        let asked = read(include_str!("../../../../../testdata/query/compared.txt"));
        assert!(asked.len() >= 539, "{}", asked.len());
        let mut sorted = texts(&asked);
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "a question stands twice");
    }
}
