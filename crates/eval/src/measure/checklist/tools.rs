//! Tools for a judge while it answers: a calculator, a span reader, a JSON query. They have no side
//! effects. Programs are run by a remote evaluator (`compose`).
//!
//! In: the tool's name and its input, both written by a model. Out: a text or an error. The calculator has
//! operators, parentheses and numbers only, in a few lines, with bounds on length and depth: an expression library
//! would add variables and functions, which input written by a model must not reach.

use serde_json::Value;

use super::log::{Chunk, LogSource};
use crate::measure::defects::clip;
use crate::recognise::{AgentTrace, json_keys};

/// The tool that a remote evaluator carries out: it runs a program.
pub(crate) const RUN_CODE: &str = "run_code";
/// Maximum bytes of a program.
pub(crate) const MAX_CODE_BYTES: usize = 16 * 1024;
/// Maximum bytes of an output.
const MAX_OUTPUT_BYTES: usize = 4096;
/// Maximum bytes of an arithmetic expression.
const MAX_ARITHMETIC_BYTES: usize = 512;
/// Maximum nesting of operands, parentheses and signs.
const MAX_DEPTH: usize = 64;

/// The output of the tool `name` for `input`, as a judge reads it.
pub(crate) fn call_tool(name: &str, input: &str, trace: &AgentTrace, log: &[Chunk]) -> String {
    let out = match name {
        "calculator" => calculate(input).map(|n| n.to_string()),
        "read_span" => read_span(input.trim(), trace, log),
        "json_query" => query_json(input, trace, log),
        _ => Err(format!("there is no tool {}", clip(name, 40))),
    };
    render_output(out)
}

/// The output of a tool as a judge reads it.
pub(crate) fn render_output(output: Result<String, String>) -> String {
    match output {
        Ok(text) => clip(&text, MAX_OUTPUT_BYTES).to_owned(),
        Err(error) => format!("error: {}", clip(&error, MAX_OUTPUT_BYTES)),
    }
}

/// The log text of a span.
fn read_span(id: &str, trace: &AgentTrace, log: &[Chunk]) -> Result<String, String> {
    text_of_span(id, trace, log.iter())
}

/// The texts of a span, joined by line breaks.
fn text_of_span<'a>(
    id: &str,
    trace: &AgentTrace,
    log: impl Iterator<Item = &'a Chunk>,
) -> Result<String, String> {
    let is_in_span =
        |chunk: &&Chunk| trace.tree.spans.get(chunk.at).is_some_and(|span| span.id.to_string() == id);
    let texts: Vec<&str> = log.filter(is_in_span).map(|chunk| chunk.text.as_str()).collect();
    if texts.is_empty() {
        Err(format!("no span {} with content", clip(id, 40)))
    } else {
        Ok(texts.join("\n"))
    }
}

/// The value at a JSON pointer in the texts of a span. The input is the id of the span, a blank and the pointer.
fn query_json(input: &str, trace: &AgentTrace, log: &[Chunk]) -> Result<String, String> {
    let (id, pointer) =
        input.trim().split_once(' ').ok_or("expected a span id, a blank and a JSON pointer")?;
    // The arguments of a call are not its result.
    let text = text_of_span(id, trace, log.iter().filter(|chunk| chunk.source != LogSource::Call))?;
    let value = json_keys::parse(&text).ok_or("the span's result is not JSON, or too large")?;
    value
        .pointer(pointer.trim())
        .map(Value::to_string)
        .ok_or_else(|| "there is no value at this pointer".to_owned())
}

/// Arithmetic: `+ - * / ^ %`, parentheses, decimal numbers with or without `,` between thousands.
fn calculate(input: &str) -> Result<f64, String> {
    if input.len() > MAX_ARITHMETIC_BYTES {
        return Err(format!("longer than {MAX_ARITHMETIC_BYTES} bytes"));
    }
    let text: Vec<u8> = input.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b',').collect();
    let mut calculator = Calculator { text: &text, offset: 0, depth: 0 };
    let value = calculator.expression(1)?;
    match calculator.peek() {
        Some(other) => Err(format!("'{}' is not arithmetic", char::from(other))),
        None if value.is_finite() => Ok(value),
        None => Err("the result is not a finite number".to_owned()),
    }
}

/// Precedence of powers: higher than that of a sign, so that -2^2 is -4.
const POWER: u8 = 3;

struct Calculator<'a> {
    text: &'a [u8],
    offset: usize,
    depth: usize,
}

impl Calculator<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.offset).copied()
    }

    /// An expression whose operators outside parentheses have a precedence of at least `min_precedence`.
    fn expression(&mut self, min_precedence: u8) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("nested too deeply".to_owned());
        }
        let mut value = self.operand()?;
        while let Some(operator) = self.peek() {
            let (precedence, right_precedence) = match operator {
                b'+' | b'-' => (1, 2),
                b'*' | b'/' | b'%' => (2, POWER),
                // Powers associate to the right.
                b'^' => (POWER, POWER),
                _ => break,
            };
            if precedence < min_precedence {
                break;
            }
            self.offset += 1;
            let right = self.expression(right_precedence)?;
            value = match operator {
                b'+' => value + right,
                b'-' => value - right,
                b'*' => value * right,
                b'/' => value / right,
                b'%' => value % right,
                _ => value.powf(right),
            };
        }
        self.depth -= 1;
        Ok(value)
    }

    /// A number, a sign with its operand, or an expression in parentheses.
    fn operand(&mut self) -> Result<f64, String> {
        let start = self.offset;
        self.offset += 1;
        match self.text.get(start) {
            Some(b'-') => self.expression(POWER).map(|value| -value),
            Some(b'+') => self.expression(POWER),
            Some(b'(') => {
                let value = self.expression(1)?;
                self.offset += 1;
                let closed = self.text.get(self.offset - 1) == Some(&b')');
                closed.then_some(value).ok_or_else(|| "a parenthesis is not closed".to_owned())
            }
            _ => {
                let rest = self.text.get(start..).unwrap_or_default();
                let digits = rest.split(|b| !(b.is_ascii_digit() || *b == b'.')).next().unwrap_or_default();
                self.offset = start + digits.len();
                let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                number.ok_or_else(|| "a number is missing".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::log::{chunks, texts};
    use super::*;
    use crate::measure::Memo;
    use crate::measure::testing::Script;

    #[test]
    fn arithmetic_is_evaluated_and_other_input_is_an_error() {
        assert_eq!(calculate("5,642 - 4806"), Ok(836.0));
        assert_eq!(calculate("-2^2 + 3*(4-1)%5"), Ok(0.0));
        assert_eq!(calculate("2^-1"), Ok(0.5));
        assert!(calculate("1/0").is_err() && calculate("x+1").is_err() && calculate("").is_err());
        assert!(calculate(&"(".repeat(200)).is_err() && calculate(&"-".repeat(200)).is_err());
        assert!(calculate("1 2").is_ok_and(|n| n == 12.0));
    }

    #[test]
    fn span_content_is_read_and_queried() {
        let trace = Script::new("Price?")
            .calls("", &[("get", "{}")])
            .returns(r#"{"items": [{"price": 3}]}"#)
            .answers("3")
            .build();
        let log = chunks(&texts(&trace, &Memo::new(), &trace.agents[0], None), 300);
        let result = log.iter().find(|c| c.text.contains("price")).unwrap();
        let id = trace.tree.spans[result.at].id.to_string();
        assert_eq!(call_tool("json_query", &format!("{id} /items/0/price"), &trace, &log), "3");
        assert!(call_tool("read_span", &id, &trace, &log).contains("items"));
        assert!(call_tool("read_span", "nonsense", &trace, &log).starts_with("error"));
        assert!(call_tool("shell", "rm -rf /", &trace, &log).starts_with("error"));
    }

    proptest! {
        #[test]
        fn any_input_is_evaluated_without_panic(input in ".{0,80}") {
            let _ = calculate(&input);
        }
    }
}
