//! Parser of templates: tokens to syntax trees, one tree per `{{define}}`.
//!
//! Messages are those of Go 1.26, because users search for them.

use super::node::{
    Branches, Definitions, Operand, Pipeline, TemplateCall, TemplateCommand, TemplateNode,
    TemplateOperand,
};
use super::number::number_literal;
use super::quote::{quoted, unquote};
use super::token::{PositionedToken, TemplateTokenKind, tokens};

/// Limit of nested parentheses and blocks. The parser, the evaluator and the destructor of a tree
/// recurse: 64 levels need less than 1 MiB of stack in a debug build.
pub(super) const NESTING_MAX: usize = 64;

type ParseResult<T> = Result<T, String>;

/// Parses `text`, whose own tree gets the name `name`. The error is a message with name and line.
pub(super) fn parse(
    name: &str,
    text: &str,
    is_function: &dyn Fn(&str) -> bool,
) -> ParseResult<Definitions> {
    let mut parser = TemplateParser {
        name,
        tokens: tokens(text),
        next: 0,
        lexed: 0,
        nesting: 0,
        definitions: Definitions::new(),
        scope: VariableScope::new(),
        is_function,
    };
    let root = parser.text()?;
    parser.define(name.to_owned(), root)?;
    Ok(parser.definitions)
}

/// State of one tree.
struct VariableScope {
    variables: Vec<String>,
    range_depth: usize,
    /// Line where the current action starts, 0 outside actions.
    action_line: usize,
}

impl VariableScope {
    fn new() -> VariableScope {
        VariableScope { variables: vec!["$".to_owned()], range_depth: 0, action_line: 0 }
    }
}

/// What ends a list of nodes.
#[derive(Clone, Copy, PartialEq)]
enum ListEnd {
    Else,
    End,
}

impl ListEnd {
    fn text(self) -> &'static str {
        match self {
            ListEnd::Else => "{{else}}",
            ListEnd::End => "{{end}}",
        }
    }
}

enum ListItem {
    Node(TemplateNode),
    End(ListEnd),
}

struct TemplateParser<'a> {
    name: &'a str,
    tokens: Vec<PositionedToken>,
    /// Index of the next token.
    next: usize,
    /// Greatest index of a token that was looked at; errors name its line.
    lexed: usize,
    nesting: usize,
    definitions: Definitions,
    scope: VariableScope,
    is_function: &'a dyn Fn(&str) -> bool,
}

impl TemplateParser<'_> {
    fn error<T>(&self, message: impl AsRef<str>) -> ParseResult<T> {
        let line = self.tokens[self.lexed].line;
        Err(format!("template: {}:{line}: {}", self.name, message.as_ref()))
    }

    fn unexpected<T>(&self, token: &PositionedToken, context: &str) -> ParseResult<T> {
        if token.kind != TemplateTokenKind::Error {
            return self.error(format!("unexpected {} in {context}", token.describe()));
        }
        let started = self.scope.action_line;
        let extra = match started != 0 && started != token.line {
            true if token.text.ends_with(" action") => {
                format!(" started at {}:{started}", self.name)
            }
            true => format!(" in action started at {}:{started}", self.name),
            false => String::new(),
        };
        self.error(format!("{}{extra}", token.text))
    }

    fn token(&mut self) -> PositionedToken {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len());
        token
    }

    fn peek(&mut self) -> PositionedToken {
        let index = self.next.min(self.tokens.len() - 1);
        self.lexed = self.lexed.max(index);
        self.tokens[index].clone()
    }

    fn token_after_space(&mut self) -> PositionedToken {
        self.peek_after_space();
        self.token()
    }

    fn peek_after_space(&mut self) -> PositionedToken {
        while self.peek().kind == TemplateTokenKind::Space {
            self.next += 1;
        }
        self.peek()
    }

    fn expect(&mut self, kind: TemplateTokenKind, context: &str) -> ParseResult<PositionedToken> {
        let token = self.token_after_space();
        if token.kind != kind {
            return self.unexpected(&token, context);
        }
        Ok(token)
    }

    fn nest(&mut self) -> ParseResult<()> {
        self.nesting += 1;
        match self.nesting > NESTING_MAX {
            true => self.error(format!("nesting limit ({NESTING_MAX}) reached")),
            false => Ok(()),
        }
    }

    fn define(&mut self, name: String, nodes: Vec<TemplateNode>) -> ParseResult<()> {
        match self.definitions.get(&name) {
            Some(existing) if !is_blank(existing) => match is_blank(&nodes) {
                true => Ok(()),
                false => {
                    let name = quoted(&name);
                    self.error(format!("template: multiple definition of template {name}"))
                }
            },
            _ => {
                self.definitions.insert(name, nodes);
                Ok(())
            }
        }
    }

    /// The whole text; `{{define}}` is allowed only at this level.
    fn text(&mut self) -> ParseResult<Vec<TemplateNode>> {
        let mut nodes = Vec::new();
        loop {
            let token = self.peek();
            if token.kind == TemplateTokenKind::EndOfText {
                return Ok(nodes);
            }
            if token.kind == TemplateTokenKind::LeftDelimiter {
                let start = self.next;
                self.token();
                if self.token_after_space().kind == TemplateTokenKind::Define {
                    self.definition()?;
                    continue;
                }
                self.next = start;
            }
            match self.text_or_action()? {
                ListItem::Node(node) => nodes.push(node),
                ListItem::End(end) => return self.error(format!("unexpected {}", end.text())),
            }
        }
    }

    fn definition(&mut self) -> ParseResult<()> {
        let outer = std::mem::replace(&mut self.scope, VariableScope::new());
        let token = self.token_after_space();
        let name = self.template_name(&token, "define clause")?;
        self.expect(TemplateTokenKind::RightDelimiter, "define clause")?;
        self.named_body(name, "define clause")?;
        self.scope = outer;
        Ok(())
    }

    /// The body of a `{{define}}` or `{{block}}`.
    fn named_body(&mut self, name: String, context: &str) -> ParseResult<()> {
        let (nodes, end) = self.list()?;
        if end != ListEnd::End {
            return self.error(format!("unexpected {} in {context}", end.text()));
        }
        self.define(name, nodes)
    }

    fn list(&mut self) -> ParseResult<(Vec<TemplateNode>, ListEnd)> {
        self.nest()?;
        let mut nodes = Vec::new();
        while self.peek_after_space().kind != TemplateTokenKind::EndOfText {
            match self.text_or_action()? {
                ListItem::Node(node) => nodes.push(node),
                ListItem::End(end) => {
                    self.nesting -= 1;
                    return Ok((nodes, end));
                }
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> ParseResult<ListItem> {
        let token = self.token_after_space();
        match token.kind {
            TemplateTokenKind::Text => Ok(ListItem::Node(TemplateNode::Text(token.text))),
            TemplateTokenKind::LeftDelimiter => {
                self.scope.action_line = token.line;
                let parsed = self.action()?;
                self.scope.action_line = 0;
                Ok(parsed)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> ParseResult<ListItem> {
        let token = self.token_after_space();
        let node = match token.kind {
            TemplateTokenKind::Block => self.block()?,
            TemplateTokenKind::Break => self.loop_control("{{break}}", TemplateNode::Break)?,
            TemplateTokenKind::Continue => {
                self.loop_control("{{continue}}", TemplateNode::Continue)?
            }
            TemplateTokenKind::Else => {
                let next = self.peek_after_space().kind;
                if !matches!(next, TemplateTokenKind::If | TemplateTokenKind::With) {
                    self.expect(TemplateTokenKind::RightDelimiter, "else")?;
                }
                return Ok(ListItem::End(ListEnd::Else));
            }
            TemplateTokenKind::End => {
                self.expect(TemplateTokenKind::RightDelimiter, "end")?;
                return Ok(ListItem::End(ListEnd::End));
            }
            TemplateTokenKind::If => TemplateNode::If(self.branches("if", TemplateTokenKind::If)?),
            TemplateTokenKind::With => {
                TemplateNode::With(self.branches("with", TemplateTokenKind::With)?)
            }
            TemplateTokenKind::Range => self.range()?,
            TemplateTokenKind::Template => self.template_call()?,
            _ => {
                self.next -= 1;
                TemplateNode::Action(self.pipeline("command", TemplateTokenKind::RightDelimiter)?)
            }
        };
        Ok(ListItem::Node(node))
    }

    fn loop_control(&mut self, text: &str, node: TemplateNode) -> ParseResult<TemplateNode> {
        self.expect(TemplateTokenKind::RightDelimiter, text)?;
        match self.scope.range_depth {
            0 => self.error(format!("{text} outside {{{{range}}}}")),
            _ => Ok(node),
        }
    }

    fn branches(&mut self, context: &str, keyword: TemplateTokenKind) -> ParseResult<Branches> {
        let variable_count = self.scope.variables.len();
        let mut tried = Vec::new();
        let otherwise = loop {
            let pipeline = self.pipeline(context, TemplateTokenKind::RightDelimiter)?;
            let (nodes, end) = self.list()?;
            tried.push((pipeline, nodes));
            if end == ListEnd::End {
                break None;
            }
            if self.peek().kind == keyword {
                self.token();
                continue;
            }
            break Some(self.last_list()?);
        };
        self.scope.variables.truncate(variable_count);
        Ok(Branches { tried, otherwise })
    }

    /// What follows `{{else}}`.
    fn last_list(&mut self) -> ParseResult<Vec<TemplateNode>> {
        let (nodes, end) = self.list()?;
        match end {
            ListEnd::End => Ok(nodes),
            ListEnd::Else => self.error("expected end; found {{else}}"),
        }
    }

    fn range(&mut self) -> ParseResult<TemplateNode> {
        let variable_count = self.scope.variables.len();
        let pipeline = self.pipeline("range", TemplateTokenKind::RightDelimiter)?;
        self.scope.range_depth += 1;
        let (body, end) = self.list()?;
        self.scope.range_depth -= 1;
        let otherwise = match end {
            ListEnd::End => None,
            ListEnd::Else => Some(self.last_list()?),
        };
        self.scope.variables.truncate(variable_count);
        Ok(TemplateNode::Range { pipeline, body, otherwise })
    }

    fn block(&mut self) -> ParseResult<TemplateNode> {
        let token = self.token_after_space();
        let name = self.template_name(&token, "block clause")?;
        let pipeline = self.pipeline("block clause", TemplateTokenKind::RightDelimiter)?;
        let outer = std::mem::replace(&mut self.scope, VariableScope::new());
        self.named_body(name.clone(), "block clause")?;
        self.scope = outer;
        let pipeline = Some(pipeline);
        Ok(TemplateNode::Template(TemplateCall { offset: token.offset, name, pipeline }))
    }

    fn template_call(&mut self) -> ParseResult<TemplateNode> {
        let token = self.token_after_space();
        let name = self.template_name(&token, "template clause")?;
        let pipeline = match self.peek_after_space().kind {
            TemplateTokenKind::RightDelimiter => {
                self.token();
                None
            }
            _ => Some(self.pipeline("template clause", TemplateTokenKind::RightDelimiter)?),
        };
        Ok(TemplateNode::Template(TemplateCall { offset: token.offset, name, pipeline }))
    }

    fn template_name(&mut self, token: &PositionedToken, context: &str) -> ParseResult<String> {
        match token.kind {
            TemplateTokenKind::QuotedString | TemplateTokenKind::RawString => {
                self.string_value(token)
            }
            _ => self.unexpected(token, context),
        }
    }

    fn string_value(&self, token: &PositionedToken) -> ParseResult<String> {
        match unquote(&token.text) {
            Some(value) => Ok(value),
            None => self.error("invalid syntax"),
        }
    }

    fn pipeline(&mut self, context: &str, end: TemplateTokenKind) -> ParseResult<Pipeline> {
        let offset = self.peek_after_space().offset;
        let mut pipeline =
            Pipeline { offset, assigns: false, variables: Vec::new(), commands: Vec::new() };
        while self.declaration(context, &mut pipeline)? {}
        loop {
            let token = self.token_after_space();
            match token.kind {
                kind if kind == end => break,
                kind if starts_operand(kind) => {
                    self.next -= 1;
                    pipeline.commands.push(self.command()?);
                }
                _ => return self.unexpected(&token, context),
            }
        }
        if pipeline.commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        for (index, command) in pipeline.commands.iter().enumerate().skip(1) {
            if matches!(
                command.operands[0].kind,
                TemplateOperand::Bool(_)
                    | TemplateOperand::Dot
                    | TemplateOperand::Nil
                    | TemplateOperand::Number(_)
                    | TemplateOperand::Text(..)
            ) {
                let stage = index + 1;
                return self.error(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(pipeline)
    }

    /// One declared or assigned variable, if there is one. True if a second one follows.
    fn declaration(&mut self, context: &str, pipeline: &mut Pipeline) -> ParseResult<bool> {
        let variable = self.peek_after_space();
        if variable.kind != TemplateTokenKind::Variable {
            return Ok(false);
        }
        let start = self.next;
        self.token();
        let sign = self.peek_after_space();
        match sign.kind {
            TemplateTokenKind::Assign | TemplateTokenKind::Declare => {
                pipeline.assigns = sign.kind == TemplateTokenKind::Assign;
                self.token();
                pipeline.variables.push(variable.text.clone());
                self.scope.variables.push(variable.text);
                Ok(false)
            }
            TemplateTokenKind::Char if sign.text == "," => {
                self.token();
                pipeline.variables.push(variable.text.clone());
                self.scope.variables.push(variable.text);
                if context == "range" && pipeline.variables.len() < 2 {
                    return match self.peek_after_space().kind {
                        TemplateTokenKind::Variable
                        | TemplateTokenKind::RightDelimiter
                        | TemplateTokenKind::RightParenthesis => Ok(true),
                        _ => self.error("range can only initialize variables"),
                    };
                }
                self.error(format!("too many declarations in {context}"))
            }
            _ => {
                self.next = start;
                Ok(false)
            }
        }
    }

    /// Operands up to a pipe character, which is consumed, or the end of the pipeline.
    fn command(&mut self) -> ParseResult<TemplateCommand> {
        let offset = self.peek_after_space().offset;
        let mut operands = Vec::new();
        loop {
            self.peek_after_space();
            operands.extend(self.operand()?);
            let token = self.token();
            match token.kind {
                TemplateTokenKind::Space => continue,
                TemplateTokenKind::RightDelimiter | TemplateTokenKind::RightParenthesis => {
                    self.next -= 1
                }
                TemplateTokenKind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        match operands.is_empty() {
            true => self.error("empty command"),
            false => Ok(TemplateCommand { offset, operands }),
        }
    }

    fn operand(&mut self) -> ParseResult<Option<Operand>> {
        let Some(first) = self.term()? else { return Ok(None) };
        if self.peek().kind != TemplateTokenKind::Field {
            return Ok(Some(first));
        }
        let offset = self.peek().offset;
        let mut fields = Vec::new();
        while self.peek().kind == TemplateTokenKind::Field {
            fields.push(self.token().text[1..].to_owned());
        }
        let kind = match first.kind {
            TemplateOperand::Field(mut names) => {
                names.extend(fields);
                TemplateOperand::Field(names)
            }
            TemplateOperand::Variable(mut names) => {
                names.extend(fields);
                TemplateOperand::Variable(names)
            }
            TemplateOperand::Bool(_)
            | TemplateOperand::Text(..)
            | TemplateOperand::Number(_)
            | TemplateOperand::Nil
            | TemplateOperand::Dot => {
                let term = quoted(&first.to_string());
                return self.error(format!("unexpected . after term {term}"));
            }
            _ => TemplateOperand::Chain(Box::new(first), fields),
        };
        Ok(Some(Operand { offset, kind }))
    }

    fn term(&mut self) -> ParseResult<Option<Operand>> {
        let token = self.token_after_space();
        let kind = match token.kind {
            TemplateTokenKind::Identifier => {
                if !(self.is_function)(&token.text) {
                    let name = quoted(&token.text);
                    return self.error(format!("function {name} not defined"));
                }
                TemplateOperand::Function(token.text)
            }
            TemplateTokenKind::Dot => TemplateOperand::Dot,
            TemplateTokenKind::NilConstant => TemplateOperand::Nil,
            TemplateTokenKind::Variable => {
                if !self.scope.variables.contains(&token.text) {
                    let name = quoted(&token.text);
                    return self.error(format!("undefined variable {name}"));
                }
                TemplateOperand::Variable(vec![token.text])
            }
            TemplateTokenKind::Field => TemplateOperand::Field(vec![token.text[1..].to_owned()]),
            TemplateTokenKind::Bool => TemplateOperand::Bool(token.text == "true"),
            TemplateTokenKind::CharConstant
            | TemplateTokenKind::Complex
            | TemplateTokenKind::Number => match number_literal(&token) {
                Ok(number) => TemplateOperand::Number(number),
                Err(message) => return self.error(message),
            },
            TemplateTokenKind::LeftParenthesis => {
                self.nest()?;
                let pipeline =
                    self.pipeline("parenthesized pipeline", TemplateTokenKind::RightParenthesis)?;
                self.nesting -= 1;
                TemplateOperand::Pipeline(Box::new(pipeline))
            }
            TemplateTokenKind::QuotedString | TemplateTokenKind::RawString => {
                let value = self.string_value(&token)?;
                TemplateOperand::Text(token.text, value)
            }
            _ => {
                self.next -= 1;
                return Ok(None);
            }
        };
        let offset = match &kind {
            TemplateOperand::Pipeline(pipeline) => pipeline.offset,
            _ => token.offset,
        };
        Ok(Some(Operand { offset, kind }))
    }
}

fn starts_operand(kind: TemplateTokenKind) -> bool {
    use TemplateTokenKind::*;
    matches!(
        kind,
        Bool | CharConstant
            | Complex
            | Dot
            | Field
            | Identifier
            | Number
            | NilConstant
            | RawString
            | QuotedString
            | Variable
            | LeftParenthesis
    )
}

/// Whether nodes are only white space; such a template may be defined again.
fn is_blank(nodes: &[TemplateNode]) -> bool {
    nodes.iter().all(|node| match node {
        TemplateNode::Text(text) => text.trim().is_empty(),
        _ => false,
    })
}
