//! From calls to tokens (002, section 2.1): a function with a pattern of arguments is a symbol.
//!
//! In: the name and arguments of a call. Out: the first symbol that it fits, a token of its own
//! where it fits none, or that nobody can tell, because its arguments were not recorded. Missing or
//! extra arguments do not fit unless the definition says so.

use foldhash::HashMap;
use serde_json::{Map, Value};

use super::argument::{Captured, Pattern};
use super::automaton::Symbol;
use verdict_config::matches;

/// Where the value stands to which a pattern applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// An argument.
    Name(String),
    /// Inside of an argument: a JSON pointer into the object of all arguments.
    Pointer(String),
}

impl Key {
    /// One that begins with a slash is a pointer.
    pub fn new(text: &str) -> Key {
        if text.starts_with('/') { Key::Pointer(text.to_owned()) } else { Key::Name(text.to_owned()) }
    }

    fn find<'v>(&self, arguments: &'v Map<String, Value>) -> Option<&'v Value> {
        match self {
            Key::Name(name) => arguments.get(name),
            Key::Pointer(pointer) => {
                let (first, rest) = split_pointer(pointer);
                arguments.get(&first).and_then(|value| value.pointer(rest))
            }
        }
    }

    /// The argument that it looks at, or into.
    fn argument(&self) -> String {
        match self {
            Key::Name(name) => name.clone(),
            Key::Pointer(pointer) => split_pointer(pointer).0,
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

/// What is asked of one argument.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Which.
    pub key: Key,
    /// It may be left out.
    pub optional: bool,
    /// What it must be like.
    pub pattern: Pattern,
}

/// A symbol's meaning.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its name.
    pub symbol: String,
    /// The function called.
    pub function: String,
    /// Its arguments; `None` for any whatever.
    pub arguments: Option<Vec<Argument>>,
    /// Arguments that are not named may be given too.
    pub others: bool,
}

impl Definition {
    fn fits(&self, given: &Map<String, Value>, captured: &Captured) -> bool {
        let Some(wanted) = &self.arguments else { return true };
        let extra = || given.keys().any(|name| !wanted.iter().any(|w| w.key.argument() == *name));
        wanted.iter().all(|w| match w.key.find(given) {
            Some(value) => w.pattern.fits(value, captured),
            None => w.optional,
        }) && (self.others || !extra())
    }

    /// No call fits both. False where that is not plain.
    pub fn excludes(&self, other: &Definition) -> bool {
        if self.function != other.function {
            return true;
        }
        let (Some(mine), Some(theirs)) = (&self.arguments, &other.arguments) else { return false };
        let foreign = |one: &[Argument], other: &[Argument], others: bool| {
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

/// What a call is to an alphabet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// This symbol.
    Symbol(Symbol),
    /// The function is known, the arguments fit none of its patterns.
    OtherArguments,
    /// The function is not in the alphabet.
    OtherFunction,
    /// The task says to overlook it.
    Ignored,
    /// Its arguments were not recorded, and it takes them to tell.
    Untold,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Alphabet {
    definitions: Vec<Definition>,
    by_function: HashMap<String, Vec<Symbol>>,
    /// Functions to overlook; `*` at the end stands for any rest.
    ignored: Vec<String>,
    /// Overlook every function that is not in the alphabet.
    ignores_unknown: bool,
}

impl Alphabet {
    /// Of definitions in order: the first that a call fits wins.
    pub fn new(definitions: Vec<Definition>, ignored: Vec<String>, ignores_unknown: bool) -> Alphabet {
        let mut by_function: HashMap<String, Vec<Symbol>> = HashMap::default();
        for (i, definition) in definitions.iter().enumerate() {
            by_function.entry(definition.function.clone()).or_default().push(Symbol(i as u32));
        }
        Alphabet { definitions, by_function, ignored, ignores_unknown }
    }

    /// What the symbols mean.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// What a call of `function` is. `arguments` is `None` where they were not recorded.
    pub fn see(&self, function: &str, arguments: Option<&Value>, captured: &Captured) -> Seen {
        if self.ignored.iter().any(|pattern| matches(pattern, function)) {
            return Seen::Ignored;
        }
        let Some(symbols) = self.by_function.get(function) else {
            return if self.ignores_unknown { Seen::Ignored } else { Seen::OtherFunction };
        };
        let definition = |symbol: &Symbol| self.definitions.get(symbol.index());
        let none = Map::new();
        let given = match arguments {
            Some(Value::Object(given)) => given,
            Some(Value::Null) => &none,
            // Arguments that are no object fit what takes anything, and nothing else.
            other => {
                let any = |s: &&Symbol| definition(s).is_some_and(|d| d.arguments.is_none());
                // A function that takes none, called with none on record, was called so.
                let nothing = |s: &Symbol| {
                    definition(s).is_some_and(|d| d.arguments.as_ref().is_some_and(Vec::is_empty))
                };
                return match (symbols.as_slice(), other) {
                    ([first, ..], _) if any(&first) => Seen::Symbol(*first),
                    ([only], None) if nothing(only) => Seen::Symbol(*only),
                    (_, None) => Seen::Untold,
                    _ => symbols.iter().find(any).map_or(Seen::OtherArguments, |s| Seen::Symbol(*s)),
                };
            }
        };
        let fitting = |s: &&Symbol| definition(s).is_some_and(|d| d.fits(given, captured));
        symbols.iter().find(fitting).map_or(Seen::OtherArguments, |s| Seen::Symbol(*s))
    }

    /// Pairs of symbols that one call may fit both: the first wins.
    pub fn overlaps(&self) -> impl Iterator<Item = (&Definition, &Definition)> {
        self.definitions.iter().enumerate().flat_map(move |(i, a)| {
            self.definitions.iter().skip(i + 1).filter(move |b| !a.excludes(b)).map(move |b| (a, b))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn argument(key: &str, pattern: Pattern) -> Argument {
        Argument { key: Key::new(key), optional: false, pattern }
    }

    fn definition(symbol: &str, function: &str, arguments: Vec<Argument>) -> Definition {
        let (symbol, function) = (symbol.to_owned(), function.to_owned());
        Definition { symbol, function, arguments: Some(arguments), others: false }
    }

    fn see(alphabet: &Alphabet, function: &str, arguments: Value) -> Seen {
        alphabet.see(function, Some(&arguments), &Captured::default())
    }

    #[test]
    fn the_first_definition_that_fits_wins() {
        let alphabet = Alphabet::new(
            vec![
                definition("A", "water", vec![argument("plant", Pattern::equal(json!("C")))]),
                definition("B", "water", vec![argument("plant", Pattern::default())]),
                definition("N", "sense", vec![]),
            ],
            vec!["final_*".into()],
            false,
        );
        assert_eq!(see(&alphabet, "water", json!({"plant": "C"})), Seen::Symbol(Symbol(0)));
        assert_eq!(see(&alphabet, "water", json!({"plant": "D"})), Seen::Symbol(Symbol(1)));
        assert_eq!(see(&alphabet, "water", json!({"plant": "C", "force": true})), Seen::OtherArguments);
        assert_eq!(see(&alphabet, "water", json!({})), Seen::OtherArguments);
        assert_eq!(see(&alphabet, "water", json!("C")), Seen::OtherArguments);
        assert_eq!(see(&alphabet, "burn", json!({})), Seen::OtherFunction);
        assert_eq!(see(&alphabet, "final_answer", json!({})), Seen::Ignored);
        assert_eq!(see(&alphabet, "sense", json!(null)), Seen::Symbol(Symbol(2)));
        assert_eq!(alphabet.see("water", None, &Captured::default()), Seen::Untold);
        assert_eq!(alphabet.see("sense", None, &Captured::default()), Seen::Symbol(Symbol(2)));
        assert_eq!(alphabet.overlaps().count(), 1);
    }

    #[test]
    fn pointers_look_into_arguments_and_cover_them() {
        let minimum = Pattern { min: Some(0.0), ..Pattern::default() };
        let alphabet = Alphabet::new(
            vec![definition("A", "search", vec![argument("/filters/0/price", minimum)])],
            vec![],
            true,
        );
        assert_eq!(see(&alphabet, "search", json!({"filters": [{"price": 3}]})), Seen::Symbol(Symbol(0)));
        assert_eq!(see(&alphabet, "search", json!({"filters": [{"price": -3}]})), Seen::OtherArguments);
        assert_eq!(see(&alphabet, "search", json!({"filters": []})), Seen::OtherArguments);
        assert_eq!(
            see(&alphabet, "search", json!({"filters": [{"price": 3}], "q": 1})),
            Seen::OtherArguments
        );
        assert_eq!(see(&alphabet, "other", json!({})), Seen::Ignored);
    }

    #[test]
    fn what_takes_anything_needs_no_record_of_arguments() {
        let anything =
            Definition { symbol: "A".into(), function: "unlock".into(), arguments: None, others: true };
        let alphabet = Alphabet::new(vec![anything], vec![], false);
        assert_eq!(alphabet.see("unlock", None, &Captured::default()), Seen::Symbol(Symbol(0)));
        assert_eq!(see(&alphabet, "unlock", json!("{not json")), Seen::Symbol(Symbol(0)));
    }
}
