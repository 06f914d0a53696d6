//! Formulas over the states of other rules: `(A and B) and not C`, `at least 2 of A, B, C`.
//!
//! Values are those of Kleene's three-valued logic: the state of a rule without data is unknown,
//! and so is a formula whose value depends on it.

/// Maximum nesting: parser and evaluation are recursive.
const DEPTH_MAX: usize = 32;
/// Maximum number of words, parentheses and commas: a chain of `or` nests its formulas, too.
const WORDS_MAX: usize = 1_000;

/// Formula.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Formula {
    /// An alert of the rule fires.
    Rule(String),
    Not(Box<Formula>),
    And(Box<Formula>, Box<Formula>),
    Or(Box<Formula>, Box<Formula>),
    AtLeast(usize, Vec<Formula>),
}

impl Formula {
    /// Parses a formula. `and` binds stronger than `or`.
    pub(crate) fn parse(text: &str) -> Result<Formula, String> {
        let words = split(text)?;
        if words.len() > WORDS_MAX {
            let found = words.len();
            return Err(format!(
                "limit of {WORDS_MAX} words exceeded ({found}); split the formula"
            ));
        }
        let mut parser = FormulaParser { words, at: 0, depth: 0 };
        let formula = parser.or()?;
        match parser.next() {
            None => Ok(formula),
            Some(word) => Err(format!("found {word:?}, expected \"and\", \"or\" or the end")),
        }
    }

    /// Calls `each` with the name of each rule.
    pub(crate) fn each_name<'a>(&'a self, each: &mut dyn FnMut(&'a str)) {
        match self {
            Formula::Rule(name) => each(name),
            Formula::Not(inner) => inner.each_name(each),
            Formula::And(left, right) | Formula::Or(left, right) => {
                left.each_name(each);
                right.each_name(each);
            }
            Formula::AtLeast(_, parts) => parts.iter().for_each(|part| part.each_name(each)),
        }
    }

    /// Value; `None` if it is unknown.
    pub(crate) fn value(&self, is_firing: &dyn Fn(&str) -> Option<bool>) -> Option<bool> {
        match self {
            Formula::Rule(name) => is_firing(name),
            Formula::Not(inner) => inner.value(is_firing).map(|value| !value),
            Formula::And(left, right) => match (left.value(is_firing), right.value(is_firing)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Formula::Or(left, right) => match (left.value(is_firing), right.value(is_firing)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Formula::AtLeast(min, parts) => {
                let values: Vec<Option<bool>> =
                    parts.iter().map(|part| part.value(is_firing)).collect();
                let count = |wanted| values.iter().filter(|value| **value == wanted).count();
                match (count(Some(true)), count(None)) {
                    (true_count, _) if true_count >= *min => Some(true),
                    (true_count, unknown_count) if true_count + unknown_count < *min => Some(false),
                    _ => None,
                }
            }
        }
    }
}

/// Words, parentheses and commas; a name in quotes begins with a quote.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' | ',' => 1,
            '"' => {
                let end = rest[1..].find('"').ok_or_else(|| "a quote does not end".to_owned())?;
                words.push(rest[..=end].to_owned());
                rest = rest[end + 2..].trim_start();
                continue;
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | '"');
                rest.find(ends).unwrap_or(rest.len())
            }
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

struct FormulaParser {
    words: Vec<String>,
    at: usize,
    depth: usize,
}

impl FormulaParser {
    fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    /// Skips a word if it is the next one.
    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.skip(word) {
            true => Ok(()),
            false => match self.next() {
                Some(found) => Err(format!("found {found:?}, expected {word:?}")),
                None => Err(format!("found the end, expected {word:?}")),
            },
        }
    }

    fn or(&mut self) -> Result<Formula, String> {
        let mut formula = self.and()?;
        while self.skip("or") {
            formula = Formula::Or(Box::new(formula), Box::new(self.and()?));
        }
        Ok(formula)
    }

    fn and(&mut self) -> Result<Formula, String> {
        let mut formula = self.operand()?;
        while self.skip("and") {
            formula = Formula::And(Box::new(formula), Box::new(self.operand()?));
        }
        Ok(formula)
    }

    fn operand(&mut self) -> Result<Formula, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("nesting limit ({DEPTH_MAX}) exceeded"));
        }
        let formula = self.operand_within()?;
        self.depth -= 1;
        Ok(formula)
    }

    fn operand_within(&mut self) -> Result<Formula, String> {
        let Some(word) = self.next() else {
            return Err("found the end, expected the name of a rule".to_owned());
        };
        match word.as_str() {
            "not" => Ok(Formula::Not(Box::new(self.operand()?))),
            "(" => {
                let inner = self.or()?;
                self.expect(")")?;
                Ok(inner)
            }
            "at" if self.words.get(self.at).is_some_and(|next| next == "least") => {
                self.at += 1;
                self.at_least()
            }
            ")" | "," | "and" | "or" => Err(format!("found {word:?}, expected the name of a rule")),
            name => Ok(Formula::Rule(name.strip_prefix('"').unwrap_or(name).to_owned())),
        }
    }

    fn at_least(&mut self) -> Result<Formula, String> {
        let written = self.next().unwrap_or_default();
        let min: usize = written
            .parse()
            .map_err(|_| format!("found {written:?}, expected a number after \"at least\""))?;
        self.expect("of")?;
        let mut parts = vec![self.operand()?];
        while self.skip(",") {
            parts.push(self.operand()?);
        }
        match (1..=parts.len()).contains(&min) {
            true => Ok(Formula::AtLeast(min, parts)),
            false => Err(format!("found at least {min}, expected 1 to {}", parts.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value where `T` fires, `F` does not and `U` is unknown.
    #[track_caller]
    fn check(text: &str, expected: Option<bool>) {
        let formula = Formula::parse(text).unwrap();
        let value = formula.value(&|name| match name {
            "T" => Some(true),
            "F" => Some(false),
            _ => None,
        });
        assert_eq!(value, expected, "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(Formula::parse(text).unwrap_err(), expected, "{text}");
    }

    #[test]
    fn unknown_operands_make_a_formula_unknown_only_if_it_depends_on_them() {
        check("(T and T) and not F", Some(true));
        check("T and U", None);
        check("F and U", Some(false));
        check("T or U", Some(true));
        check("F or U or F", None);
        check("not \"U\"", None);
        check("F and T or T", Some(true));
        check("at least 2 of T, U, T", Some(true));
        check("at least 2 of T, U, F", None);
        check("at least 2 of (T and F), U, F", Some(false));
        check("not at least 1 of F, F and T", Some(true));
    }

    #[test]
    fn errors_say_what_is_expected() {
        check_error("", "found the end, expected the name of a rule");
        check_error("A B", "found \"B\", expected \"and\", \"or\" or the end");
        check_error("(A and B", "found the end, expected \")\"");
        check_error("A and", "found the end, expected the name of a rule");
        check_error("at least 4 of A, B", "found at least 4, expected 1 to 2");
        check_error("at least x of A", "found \"x\", expected a number after \"at least\"");
        check_error("\"A", "a quote does not end");
        check_error(&"(".repeat(100), "nesting limit (32) exceeded");
        check_error(&"not ".repeat(100), "nesting limit (32) exceeded");
        // Its evaluation and its end would overflow the stack.
        let chain = format!("T{}", " or T".repeat(200_000));
        let expected = "limit of 1000 words exceeded (400001); split the formula";
        check_error(&chain, expected);
        let longest = format!("F{}", " or F".repeat(499));
        assert_eq!(Formula::parse(&longest).unwrap().value(&|_| Some(false)), Some(false));
    }
}
