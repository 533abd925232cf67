//! Converts calls to tokens (002, section 2.1): a function with a pattern of arguments is a symbol.
//!
//! In: the name and arguments of a call. Out: an [`ObservedCall`]: the first symbol that matches, or the reason why
//! there is none. Missing or extra arguments do not match unless the definition allows them.

use std::fmt;

use foldhash::HashMap;
use serde_json::{Map, Value};
use verdict_config::matches;

use super::argument::ValuePattern;
use super::automaton::Symbol;
use super::prompt_pattern::PromptCaptures;

/// The value that a pattern applies to: an argument, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArgumentKey {
    argument: String,
    /// A JSON pointer into the argument's value.
    pointer: String,
}

impl ArgumentKey {
    /// Text that begins with a slash is a JSON pointer into the object of all arguments, any other
    /// text is a name.
    pub fn new(text: &str) -> ArgumentKey {
        let Some(inner) = text.strip_prefix('/') else { return ArgumentKey::name(text) };
        let (first, rest) = inner.split_at(inner.find('/').unwrap_or(inner.len()));
        ArgumentKey { argument: first.replace("~1", "/").replace("~0", "~"), pointer: rest.to_owned() }
    }

    pub(super) fn name(name: &str) -> ArgumentKey {
        ArgumentKey { argument: name.to_owned(), pointer: String::new() }
    }

    pub(super) fn find<'v>(&self, arguments: &'v Map<String, Value>) -> Option<&'v Value> {
        arguments.get(&self.argument)?.pointer(&self.pointer)
    }
}

impl fmt::Display for ArgumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.pointer.is_empty() { "" } else { "/" };
        write!(f, "{slash}{}{}", self.argument, self.pointer)
    }
}

/// The condition on one argument.
#[derive(Clone, Debug)]
pub struct ArgumentPattern {
    pub key: ArgumentKey,
    /// Whether the argument may be missing.
    pub is_optional: bool,
    /// The condition on its value.
    pub pattern: ValuePattern,
}

/// The calls that a symbol represents.
#[derive(Clone, Debug)]
pub struct SymbolDefinition {
    pub symbol: String,
    pub function: String,
    /// Conditions on the function's arguments; `None` accepts any arguments.
    pub arguments: Option<Vec<ArgumentPattern>>,
    /// Whether arguments without a condition are accepted.
    pub accepts_others: bool,
}

impl SymbolDefinition {
    /// Whether the symbol represents a call with these arguments.
    fn fits(&self, arguments: &Map<String, Value>, captures: &PromptCaptures) -> bool {
        let Some(patterns) = &self.arguments else { return true };
        let has_others = || arguments.keys().any(|name| !patterns.iter().any(|p| p.key.argument == *name));
        patterns.iter().all(|argument| match argument.key.find(arguments) {
            Some(value) => argument.pattern.fits(value, captures),
            None => argument.is_optional,
        }) && (self.accepts_others || !has_others())
    }

    /// Whether it is certain that no call matches both definitions.
    pub fn excludes(&self, other: &SymbolDefinition) -> bool {
        if self.function != other.function {
            return true;
        }
        let (Some(own_patterns), Some(other_patterns)) = (&self.arguments, &other.arguments) else {
            return false;
        };
        // Whether `one` requires an argument that `other` does not accept.
        let requires_unknown = |one: &[ArgumentPattern],
                                other: &[ArgumentPattern],
                                other_accepts_others: bool| {
            let is_unknown = |a: &ArgumentPattern| !other.iter().any(|b| b.key.argument == a.key.argument);
            !other_accepts_others && one.iter().any(|a| !a.is_optional && is_unknown(a))
        };
        requires_unknown(own_patterns, other_patterns, other.accepts_others)
            || requires_unknown(other_patterns, own_patterns, self.accepts_others)
            || own_patterns.iter().any(|a| {
                other_patterns
                    .iter()
                    .filter(|b| b.key == a.key)
                    .any(|b| !(a.is_optional && b.is_optional) && a.pattern.excludes(&b.pattern))
            })
    }
}

/// The classification of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObservedCall {
    Symbol(Symbol),
    /// The function is known, its arguments match no symbol.
    OtherArguments,
    /// The function is not in the alphabet.
    OtherFunction,
    /// The task ignores the call.
    Ignored,
    /// The symbol depends on the arguments, which were not recorded.
    ArgumentsNotRecorded,
}

/// The symbols of a task, and the functions that it ignores.
#[derive(Clone, Debug, Default)]
pub struct Alphabet {
    definitions: Vec<SymbolDefinition>,
    by_function: HashMap<String, Vec<Symbol>>,
    /// Ignored functions; `*` at the end matches any suffix.
    ignored: Vec<String>,
    /// Whether every function that is not in the alphabet is ignored.
    ignores_unknown: bool,
}

impl Alphabet {
    /// A call is classified by the first definition that it matches.
    pub fn new(definitions: Vec<SymbolDefinition>, ignored: Vec<String>, ignores_unknown: bool) -> Alphabet {
        let mut by_function: HashMap<String, Vec<Symbol>> = HashMap::default();
        for (i, definition) in definitions.iter().enumerate() {
            by_function.entry(definition.function.clone()).or_default().push(Symbol(i as u32));
        }
        Alphabet { definitions, by_function, ignored, ignores_unknown }
    }

    /// Whether functions outside the alphabet are ignored.
    pub(super) fn ignores_unknown(&self) -> bool {
        self.ignores_unknown
    }

    /// The definitions, in order of the symbols.
    pub fn definitions(&self) -> &[SymbolDefinition] {
        &self.definitions
    }

    /// The symbols of a function.
    pub(super) fn symbols_of(&self, function: &str) -> &[Symbol] {
        self.by_function.get(function).map_or(&[], Vec::as_slice)
    }

    /// Classifies a call of `function`. `arguments` is `None` if they were not recorded.
    pub fn classify(
        &self,
        function: &str,
        arguments: Option<&Value>,
        captures: &PromptCaptures,
    ) -> ObservedCall {
        if self.ignored.iter().any(|pattern| matches(pattern, function)) {
            return ObservedCall::Ignored;
        }
        let Some(symbols) = self.by_function.get(function) else {
            return if self.ignores_unknown { ObservedCall::Ignored } else { ObservedCall::OtherFunction };
        };
        let mut candidates = symbols.iter().filter_map(|s| Some((*s, self.definitions.get(s.index())?)));
        let definition = match arguments {
            Some(Value::Object(arguments)) => candidates.find(|(_, d)| d.fits(arguments, captures)),
            Some(Value::Null) => candidates.find(|(_, d)| d.fits(&Map::new(), captures)),
            // Arguments that are no object match only definitions that accept any.
            Some(_) => candidates.find(|(_, d)| d.arguments.is_none()),
            None => {
                // The symbol is certain if it does not depend on the arguments.
                let is_certain = |d: &SymbolDefinition| match &d.arguments {
                    None => true,
                    Some(patterns) => patterns.is_empty() && symbols.len() == 1,
                };
                let first = candidates.next().filter(|(_, d)| is_certain(d));
                return first.map_or(ObservedCall::ArgumentsNotRecorded, |(s, _)| ObservedCall::Symbol(s));
            }
        };
        definition.map_or(ObservedCall::OtherArguments, |(symbol, _)| ObservedCall::Symbol(symbol))
    }

    /// Pairs of definitions that may match the same call; the first of both is used.
    pub fn overlaps(&self) -> impl Iterator<Item = (&SymbolDefinition, &SymbolDefinition)> {
        self.definitions.iter().enumerate().flat_map(move |(i, a)| {
            self.definitions.iter().skip(i + 1).filter(move |b| !a.excludes(b)).map(move |b| (a, b))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn argument(key: &str, pattern: ValuePattern) -> ArgumentPattern {
        ArgumentPattern { key: ArgumentKey::new(key), is_optional: false, pattern }
    }

    fn definition(symbol: &str, function: &str, arguments: Vec<ArgumentPattern>) -> SymbolDefinition {
        let (symbol, function) = (symbol.to_owned(), function.to_owned());
        SymbolDefinition { symbol, function, arguments: Some(arguments), accepts_others: false }
    }

    fn classify(alphabet: &Alphabet, function: &str, arguments: Value) -> ObservedCall {
        alphabet.classify(function, Some(&arguments), &PromptCaptures::default())
    }

    #[test]
    fn call_is_classified_by_the_first_matching_definition() {
        let alphabet = Alphabet::new(
            vec![
                definition("A", "water", vec![argument("plant", ValuePattern::equal(json!("C")))]),
                definition("B", "water", vec![argument("plant", ValuePattern::default())]),
                definition("N", "sense", vec![]),
            ],
            vec!["final_*".into()],
            false,
        );
        assert_eq!(classify(&alphabet, "water", json!({"plant": "C"})), ObservedCall::Symbol(Symbol(0)));
        assert_eq!(classify(&alphabet, "water", json!({"plant": "D"})), ObservedCall::Symbol(Symbol(1)));
        assert_eq!(
            classify(&alphabet, "water", json!({"plant": "C", "force": true})),
            ObservedCall::OtherArguments
        );
        assert_eq!(classify(&alphabet, "water", json!({})), ObservedCall::OtherArguments);
        assert_eq!(classify(&alphabet, "water", json!("C")), ObservedCall::OtherArguments);
        assert_eq!(classify(&alphabet, "burn", json!({})), ObservedCall::OtherFunction);
        assert_eq!(classify(&alphabet, "final_answer", json!({})), ObservedCall::Ignored);
        assert_eq!(classify(&alphabet, "sense", json!(null)), ObservedCall::Symbol(Symbol(2)));
        assert_eq!(
            alphabet.classify("water", None, &PromptCaptures::default()),
            ObservedCall::ArgumentsNotRecorded
        );
        assert_eq!(
            alphabet.classify("sense", None, &PromptCaptures::default()),
            ObservedCall::Symbol(Symbol(2))
        );
        assert_eq!(alphabet.overlaps().count(), 1);
    }

    #[test]
    fn pointer_reads_and_covers_its_argument() {
        let minimum = ValuePattern { min: Some(0.0), ..ValuePattern::default() };
        let alphabet = Alphabet::new(
            vec![definition("A", "search", vec![argument("/filters/0/price", minimum)])],
            vec![],
            true,
        );
        assert_eq!(
            classify(&alphabet, "search", json!({"filters": [{"price": 3}]})),
            ObservedCall::Symbol(Symbol(0))
        );
        assert_eq!(
            classify(&alphabet, "search", json!({"filters": [{"price": -3}]})),
            ObservedCall::OtherArguments
        );
        assert_eq!(classify(&alphabet, "search", json!({"filters": []})), ObservedCall::OtherArguments);
        assert_eq!(
            classify(&alphabet, "search", json!({"filters": [{"price": 3}], "q": 1})),
            ObservedCall::OtherArguments
        );
        assert_eq!(classify(&alphabet, "other", json!({})), ObservedCall::Ignored);
    }

    #[test]
    fn definition_without_conditions_matches_unrecorded_arguments() {
        let anything = SymbolDefinition {
            symbol: "A".into(),
            function: "unlock".into(),
            arguments: None,
            accepts_others: true,
        };
        let alphabet = Alphabet::new(vec![anything], vec![], false);
        assert_eq!(
            alphabet.classify("unlock", None, &PromptCaptures::default()),
            ObservedCall::Symbol(Symbol(0))
        );
        assert_eq!(classify(&alphabet, "unlock", json!("{not json")), ObservedCall::Symbol(Symbol(0)));
    }
}
