//! From calls to tokens (002, section 2.1): a function with a pattern of arguments is a symbol.
//!
//! In: the name and arguments of a call. Out: the first symbol that matches, that none matches, or
//! that it is undecidable because the arguments were not recorded. Missing or extra arguments do
//! not match unless the definition allows them.

use foldhash::HashMap;
use serde_json::{Map, Value};
use verdict_config::matches;

use super::argument::{PromptCaptures, ValuePattern};
use super::automaton::Symbol;

/// The value that a pattern applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArgumentKey {
    Name(String),
    /// A JSON pointer into the object of all arguments.
    Pointer(String),
}

impl ArgumentKey {
    /// Text that begins with a slash is a pointer.
    pub fn new(text: &str) -> ArgumentKey {
        let make = if text.starts_with('/') { ArgumentKey::Pointer } else { ArgumentKey::Name };
        make(text.to_owned())
    }

    fn find<'v>(&self, arguments: &'v Map<String, Value>) -> Option<&'v Value> {
        match self {
            ArgumentKey::Name(name) => arguments.get(name),
            ArgumentKey::Pointer(pointer) => {
                let (first, rest) = split_pointer(pointer);
                arguments.get(&first).and_then(|value| value.pointer(rest))
            }
        }
    }

    /// The name of the argument that holds the value.
    fn argument(&self) -> String {
        match self {
            ArgumentKey::Name(name) => name.clone(),
            ArgumentKey::Pointer(pointer) => split_pointer(pointer).0,
        }
    }
}

fn split_pointer(pointer: &str) -> (String, &str) {
    let inner = pointer.strip_prefix('/').unwrap_or(pointer);
    let (first, rest) = match inner.find('/') {
        Some(slash) => inner.split_at(slash),
        None => (inner, ""),
    };
    (first.replace("~1", "/").replace("~0", "~"), rest)
}

/// The condition on one argument.
#[derive(Clone, Debug)]
pub struct ArgumentPattern {
    pub key: ArgumentKey,
    /// The argument may be missing.
    pub optional: bool,
    /// The condition on its value.
    pub pattern: ValuePattern,
}

#[derive(Clone, Debug)]
pub struct SymbolDefinition {
    pub symbol: String,
    pub function: String,
    /// Conditions on its arguments; `None` accepts any.
    pub arguments: Option<Vec<ArgumentPattern>>,
    /// Arguments without a condition are accepted.
    pub others: bool,
}

impl SymbolDefinition {
    fn fits(&self, given: &Map<String, Value>, captured: &PromptCaptures) -> bool {
        let Some(wanted) = &self.arguments else { return true };
        let extra = || given.keys().any(|name| !wanted.iter().any(|w| w.key.argument() == *name));
        wanted.iter().all(|w| match w.key.find(given) {
            Some(value) => w.pattern.fits(value, captured),
            None => w.optional,
        }) && (self.others || !extra())
    }

    /// Whether certainly no call matches both definitions.
    pub fn excludes(&self, other: &SymbolDefinition) -> bool {
        if self.function != other.function {
            return true;
        }
        let (Some(mine), Some(theirs)) = (&self.arguments, &other.arguments) else { return false };
        let foreign = |one: &[ArgumentPattern], other: &[ArgumentPattern], others: bool| {
            !others
                && one.iter().filter(|a| !a.optional).any(|a| {
                    let name = a.key.argument();
                    !other.iter().any(|b| b.key.argument() == name)
                })
        };
        foreign(mine, theirs, other.others)
            || foreign(theirs, mine, self.others)
            || mine.iter().any(|a| {
                theirs
                    .iter()
                    .filter(|b| b.key == a.key)
                    .any(|b| !(a.optional && b.optional) && a.pattern.excludes(&b.pattern))
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

#[derive(Clone, Debug, Default)]
pub struct Alphabet {
    definitions: Vec<SymbolDefinition>,
    by_function: HashMap<String, Vec<Symbol>>,
    /// Ignored functions; `*` at the end matches any suffix.
    ignored: Vec<String>,
    /// Every function that is not in the alphabet is ignored.
    ignores_unknown: bool,
}

impl Alphabet {
    /// The first definition that a call matches wins.
    pub fn new(definitions: Vec<SymbolDefinition>, ignored: Vec<String>, ignores_unknown: bool) -> Alphabet {
        let mut by_function: HashMap<String, Vec<Symbol>> = HashMap::default();
        for (i, definition) in definitions.iter().enumerate() {
            by_function.entry(definition.function.clone()).or_default().push(Symbol(i as u32));
        }
        Alphabet { definitions, by_function, ignored, ignores_unknown }
    }

    /// The definitions, in order of the symbols.
    pub fn definitions(&self) -> &[SymbolDefinition] {
        &self.definitions
    }

    /// Classifies a call of `function`. `arguments` is `None` if they were not recorded.
    pub fn classify(
        &self,
        function: &str,
        arguments: Option<&Value>,
        captured: &PromptCaptures,
    ) -> ObservedCall {
        if self.ignored.iter().any(|pattern| matches(pattern, function)) {
            return ObservedCall::Ignored;
        }
        let Some(symbols) = self.by_function.get(function) else {
            return if self.ignores_unknown { ObservedCall::Ignored } else { ObservedCall::OtherFunction };
        };
        let definition = |symbol: &Symbol| self.definitions.get(symbol.index());
        let none = Map::new();
        let given = match arguments {
            Some(Value::Object(given)) => given,
            Some(Value::Null) => &none,
            // Arguments that are no object match only definitions that accept any.
            other => {
                let any = |s: &&Symbol| definition(s).is_some_and(|d| d.arguments.is_none());
                // A function without arguments matches a call without recorded arguments.
                let nothing = |s: &Symbol| {
                    definition(s).is_some_and(|d| d.arguments.as_ref().is_some_and(Vec::is_empty))
                };
                return match (symbols.as_slice(), other) {
                    ([first, ..], _) if any(&first) => ObservedCall::Symbol(*first),
                    ([only], None) if nothing(only) => ObservedCall::Symbol(*only),
                    (_, None) => ObservedCall::ArgumentsNotRecorded,
                    _ => symbols
                        .iter()
                        .find(any)
                        .map_or(ObservedCall::OtherArguments, |s| ObservedCall::Symbol(*s)),
                };
            }
        };
        let fitting = |s: &&Symbol| definition(s).is_some_and(|d| d.fits(given, captured));
        symbols.iter().find(fitting).map_or(ObservedCall::OtherArguments, |s| ObservedCall::Symbol(*s))
    }

    /// Pairs of definitions that one call may match; the first of them wins.
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
        ArgumentPattern { key: ArgumentKey::new(key), optional: false, pattern }
    }

    fn definition(symbol: &str, function: &str, arguments: Vec<ArgumentPattern>) -> SymbolDefinition {
        let (symbol, function) = (symbol.to_owned(), function.to_owned());
        SymbolDefinition { symbol, function, arguments: Some(arguments), others: false }
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
        let anything =
            SymbolDefinition { symbol: "A".into(), function: "unlock".into(), arguments: None, others: true };
        let alphabet = Alphabet::new(vec![anything], vec![], false);
        assert_eq!(
            alphabet.classify("unlock", None, &PromptCaptures::default()),
            ObservedCall::Symbol(Symbol(0))
        );
        assert_eq!(classify(&alphabet, "unlock", json!("{not json")), ObservedCall::Symbol(Symbol(0)));
    }
}
