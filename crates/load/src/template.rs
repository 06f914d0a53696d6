//! Texts with variables.

use crate::requests_error::RequestsError;

/// Text with variables: `/users/{id}`. Doubled braces stand for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    tokens: Vec<TemplateToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateToken {
    Text(String),
    /// Arbitrary bytes: the only token of a binary body.
    Bytes(Vec<u8>),
    /// Index of the variable.
    Variable(usize),
}

impl Template {
    /// Constant text.
    pub fn text(text: impl Into<String>) -> Template {
        Template { tokens: vec![TemplateToken::Text(text.into())] }
    }

    /// Constant bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Template {
        Template { tokens: vec![TemplateToken::Bytes(bytes.into())] }
    }

    pub(crate) fn parse(text: &str, names: &[String]) -> Result<Template, RequestsError> {
        let broken = || RequestsError::Brace { text: text.to_owned() };
        let (mut tokens, mut literal) = (Vec::new(), String::new());
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match (c, rest.clone().next()) {
                ('{', Some('{')) | ('}', Some('}')) => {
                    literal.push(c);
                    rest.next();
                }
                ('{', _) => {
                    let (name, after) = rest.as_str().split_once('}').ok_or_else(broken)?;
                    let found = names.iter().position(|one| one == name);
                    let unknown = || RequestsError::UnknownVariable { name: name.to_owned() };
                    tokens.push(TemplateToken::Text(std::mem::take(&mut literal)));
                    tokens.push(TemplateToken::Variable(found.ok_or_else(unknown)?));
                    rest = after.chars();
                }
                ('}', _) => return Err(broken()),
                _ => literal.push(c),
            }
        }
        tokens.push(TemplateToken::Text(literal));
        Ok(Template { tokens })
    }

    pub(crate) fn uses(&self, variable: usize) -> bool {
        self.tokens
            .iter()
            .any(|token| matches!(token, TemplateToken::Variable(one) if *one == variable))
    }

    /// The content, if it has no variables.
    pub(crate) fn constant(&self) -> Option<Vec<u8>> {
        self.is_constant().then(|| self.fill_bytes(&[]))
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.tokens.iter().all(|token| !matches!(token, TemplateToken::Variable(_)))
    }

    pub(crate) fn fill(&self, values: &[String]) -> String {
        // Text, except for bytes where only text is expected.
        String::from_utf8(self.fill_bytes(values))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    pub(crate) fn fill_bytes(&self, values: &[String]) -> Vec<u8> {
        let tokens = self.tokens.iter().map(|token| match token {
            TemplateToken::Text(text) => text.as_bytes(),
            TemplateToken::Bytes(bytes) => bytes,
            TemplateToken::Variable(number) => values[*number].as_bytes(),
        });
        tokens.collect::<Vec<_>>().concat()
    }
}
