//! Calls with a swapped source and target of a movement: "from savings to checking", and `from: checking, to: savings`.
//!
//! Principle: the source is the end that the request names after "from", and the target is the one after "to". A
//! request for the way back, or to undo a movement, names the ends of the first movement, so that a request with a
//! word for a return before the ends is not compared.
//!
//! In: the request, and the calls that succeeded. Out: the first call whose ends are swapped.

use super::statements::words_of;
use crate::measure::Memo;
use crate::measure::language::names::is_of_class;
use crate::measure::language::{Language, ReadText, WordClass};
use crate::measure::records::{KeyFact, KeyNames};
use crate::recognise::Call;

/// A call, and as texts the requested source and target, and the passed ones.
pub(super) type SwappedEnds<'a> = (&'a Call, String, String);

/// The first call whose ends are swapped.
pub(super) fn find<'a>(task: &str, calls: &[&'a Call], memo: &Memo) -> Option<SwappedEnds<'a>> {
    let names = memo.shared::<KeyNames>();
    let calls_with_ends: Vec<(&Call, (&str, &str))> =
        calls.iter().filter_map(|call| Some((*call, ends(call, &names)?))).collect();
    (!calls_with_ends.is_empty()).then_some(())?;
    let task_words = words_of(task);
    let analysed_task = ReadText::new(task, None, memo);
    analysed_task.languages().find_map(|language| {
        // Value 1 restricts the words of these classes to prepositions.
        let from = language.table().first(&task_words, WordClass::Origin, 1)?;
        let (before, after_from) = (task_words.get(..from.start)?, task_words.get(from.end..)?);
        let to = language.table().first(after_from, WordClass::Target, 1)?;
        let (between, after) = (after_from.get(..to.start)?, after_from.get(to.end..)?);
        // In Japanese the words for "from" and "to" follow the ends, and the verb is last.
        let (request, from, to) = match language {
            Language::Japanese => (after, before, between),
            _ => (before, between, after),
        };
        let is_reversal = analysed_task.classes(request).has(WordClass::Reversal);
        if is_reversal { None } else { swapped(&calls_with_ends, from, to, language.is_spaced()) }
    })
}

/// The source and the target among the arguments of a call; `None` if either is missing or ambiguous.
fn ends<'c>(call: &'c Call, names: &KeyNames) -> Option<(&'c str, &'c str)> {
    let map = call.parsed.as_deref()?.as_object()?;
    let end = |class: WordClass, fact: KeyFact| {
        // Words of two letters other than "to" have other meanings in keys: "fecha_de_inicio".
        let is_end = |word: &String| (word.len() > 2 || word == "to") && is_of_class(word, class);
        let is_named = |key: &str| names.name_for(key).has_fact(fact, |words| words.iter().any(is_end));
        let mut named = map.iter().filter(|(key, _)| is_named(key));
        let (_, value) = named.next().filter(|_| named.next().is_none())?;
        value.as_str().filter(|value| value.len() > 2)
    };
    Some((end(WordClass::Origin, KeyFact::Origin)?, end(WordClass::Target, KeyFact::Target)?))
}

/// A call whose source is only in the text of the requested target and whose target is only in that of the source.
/// `None` if another call has the opposite direction.
fn swapped<'a>(
    calls_with_ends: &[(&'a Call, (&str, &str))],
    from: &str,
    to: &str,
    is_spaced: bool,
) -> Option<SwappedEnds<'a>> {
    let has = |text: &str, value: &str| match is_spaced {
        true => format!(" {text} ").contains(words_of(value).as_str()),
        false => text.contains(words_of(value).trim()),
    };
    let is_swapped = |source: &str, target: &str| {
        has(from, target) && has(to, source) && !has(from, source) && !has(to, target)
    };
    let (call, (source, target)) =
        calls_with_ends.iter().find(|(_, (source, target))| is_swapped(source, target))?;
    let is_opposite = |(_, other): &(&Call, (&str, &str))| *other == (*target, *source);
    let expected = format!("from {target} to {source}");
    (!calls_with_ends.iter().any(is_opposite))
        .then(|| (*call, expected, format!("from {source} to {target}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn rationales(task: &str, tool: &str, calls: &[&str]) -> Vec<String> {
        let call = |s: Script, a: &&str| s.calls("", &[(tool, a)]).returns(r#"{"ok":true}"#);
        let trace = calls.iter().fold(Script::new(task), call).answers("Done.").build();
        let calls: Vec<&Call> = trace.calls.iter().collect();
        find(task, &calls, &Memo::new()).into_iter().map(|(_, expected, _)| expected).collect()
    }

    #[test]
    fn swapped_ends_are_found() {
        let task = "Transfer 50 EUR from savings to checking.";
        assert_eq!(
            rationales(task, "transfer", &[r#"{"from":"checking","to":"savings","amount":50}"#]).len(),
            1
        );
        assert!(rationales(task, "transfer", &[r#"{"from":"savings","to":"checking"}"#]).is_empty());
        assert!(rationales(task, "transfer", &[r#"{"from_account":"A-1","to_account":"A-2"}"#]).is_empty());
        let spanish = "Transfiere 250 euros de C-100 a C-200.";
        assert_eq!(rationales(spanish, "transferir", &[r#"{"origen":"C-200","destino":"C-100"}"#]).len(), 1);
        assert!(rationales(spanish, "transferir", &[r#"{"origen":"C-100","destino":"C-200"}"#]).is_empty());
        let trip = "Find trains from Graz to Linz and back.";
        let ways = [r#"{"origin":"Graz","destination":"Linz"}"#, r#"{"origin":"Linz","destination":"Graz"}"#];
        assert!(rationales(trip, "find_trains", &ways).is_empty());
        assert_eq!(rationales(trip, "find_trains", &ways[1..]).len(), 1);
        for (task, arguments) in [
            ("Book the return for my trip from Graz to Linz.", r#"{"origin":"Linz","destination":"Graz"}"#),
            ("Buche die Rückfahrt der Reise von Graz nach Linz.", r#"{"von":"Linz","nach":"Graz"}"#),
            ("Reverse the transfer from savings to checking.", r#"{"from":"checking","to":"savings"}"#),
            ("Devuelve la transferencia de C-100 a C-200.", r#"{"origen":"C-200","destino":"C-100"}"#),
            ("请退回从C-100到C-200的转账。", r#"{"from":"C-200","to":"C-100"}"#),
            ("C-100からC-200への振込を取り消してください。", r#"{"from":"C-200","to":"C-100"}"#),
        ] {
            assert!(rationales(task, "transfer", &[arguments]).is_empty(), "{task}");
        }
    }

    #[test]
    fn ends_are_read_in_every_language() {
        for task in [
            "Please move 40 euros from C-100 to C-200.",
            "Bitte 40 Euro von C-100 auf C-200 umbuchen.",
            "Merci de virer 40 euros de C-100 vers C-200.",
            "Mueve 40 euros desde C-100 hasta C-200, por favor.",
            "Por favor, passe 40 euros de C-100 para C-200.",
            "Sposta per favore 40 euro dal conto C-100 al conto C-200.",
            "请从C-100转40欧元到C-200。",
            "C-100からC-200へ40ユーロを移してください。",
        ] {
            assert_eq!(
                rationales(task, "transfer", &[r#"{"from":"C-200","to":"C-100"}"#]).len(),
                1,
                "{task}"
            );
            assert!(rationales(task, "transfer", &[r#"{"from":"C-100","to":"C-200"}"#]).is_empty(), "{task}");
        }
    }
}
