//! Calls with the two ends of a movement swapped: "from savings to checking", and `from: checking, to: savings`.
//!
//! Principle: the source is the end that the request names behind "from", the target the one behind "to". A request for
//! the way back, or to undo a movement, names the ends of the first one: words of a return before them exclude it.
//!
//! In: the request, and the calls that succeeded. Out: the first call whose ends are swapped.

use super::statements::words_of;
use crate::measure::identifier::identifier_words;
use crate::recognise::Call;

/// Keys of the two ends of a movement, in the languages below.
const SOURCES: [&str; 11] = [
    "from",
    "source",
    "origin",
    "sender",
    "departure",
    "von",
    "quelle",
    "origen",
    "origine",
    "origem",
    "mittente",
];
const TARGETS: [&str; 13] = [
    "to",
    "target",
    "destination",
    "recipient",
    "receiver",
    "arrival",
    "nach",
    "ziel",
    "destino",
    "destinatario",
    "destinazione",
    "destinataire",
    "empfänger",
];
/// Words before the two ends: English, German, Spanish and Italian, French, Portuguese.
const WAYS: [(&str, &str); 8] = [
    (" from ", " to "),
    (" von ", " nach "),
    (" von ", " auf "),
    (" de ", " a "),
    (" da ", " a "),
    (" de ", " à "),
    (" de ", " para "),
    (" du ", " au "),
];

/// Beginnings of words for a return or a reversal: English, German, Spanish, French, Italian, Portuguese.
const RETURNS: [&str; 32] = [
    "return", "back", "revers", "undo", "undone", "revert", "refund", "inbound", "rollback", "zurück",
    "rück", "rueck", "storn", "widerruf", "vuelta", "regres", "devol", "devuelv", "reviert", "revert",
    "revoc", "retour", "annul", "rembours", "ritorn", "rimbors", "volta", "estorn", "reembols", "deshac",
    "desfaz", "umkehr",
];

/// A call, what was meant, and what it has.
pub(super) type Found<'a> = (&'a Call, String, String);

/// The first call whose ends are swapped.
pub(super) fn find<'a>(task: &str, calls: &[&'a Call]) -> Option<Found<'a>> {
    if !WAYS.iter().any(|(before, between)| task.contains(before) && task.contains(between)) {
        return None;
    }
    let asked = words_of(task);
    WAYS.iter().find_map(|(before, between)| {
        let (request, rest) = asked.split_once(before)?;
        let (from, to) = rest.split_once(between)?;
        let returns = |word: &str| RETURNS.iter().any(|known| word.starts_with(known));
        let is_back = request.split(' ').any(returns);
        if is_back { None } else { swapped(calls, from, to) }
    })
}

/// A call whose source is only in the words of the target, and the other way round.
fn swapped<'a>(calls: &[&'a Call], from: &str, to: &str) -> Option<Found<'a>> {
    let has = |text: &str, value: &str| format!(" {text} ").contains(words_of(value).as_str());
    let ends = |call: &'a Call| {
        let map = call.parsed.as_deref()?.as_object()?;
        let end = |known: &[&str]| {
            let is_end = |key: &str| identifier_words(key).iter().any(|word| known.contains(&word.as_str()));
            let mut found = map.iter().filter(|(key, _)| is_end(key)).filter_map(|(_, value)| value.as_str());
            found.next().filter(|value| value.len() > 2 && found.next().is_none())
        };
        Some((end(&SOURCES)?, end(&TARGETS)?))
    };
    let made: Vec<(&Call, (&str, &str))> =
        calls.iter().filter_map(|call| Some((*call, ends(call)?))).collect();
    let is_swapped = |source: &str, target: &str| {
        has(from, target) && has(to, source) && !has(from, source) && !has(to, target)
    };
    let (call, (source, target)) = made.iter().find(|(_, (source, target))| is_swapped(source, target))?;
    let is_way = |(_, other): &(&Call, (&str, &str))| *other == (*target, *source);
    let meant = format!("from {target} to {source}");
    (!made.iter().any(is_way)).then(|| (*call, meant, format!("from {source} to {target}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn found(task: &str, tool: &str, calls: &[&str]) -> Vec<String> {
        let call = |s: Script, a: &&str| s.calls("", &[(tool, a)]).returns(r#"{"ok":true}"#);
        let trace = calls.iter().fold(Script::new(task), call).answers("Done.").build();
        let calls: Vec<&Call> = trace.calls.iter().collect();
        find(task, &calls).into_iter().map(|(_, meant, _)| meant).collect()
    }

    #[test]
    fn swapped_ends_are_found() {
        let task = "Transfer 50 EUR from savings to checking.";
        assert_eq!(found(task, "transfer", &[r#"{"from":"checking","to":"savings","amount":50}"#]).len(), 1);
        assert!(found(task, "transfer", &[r#"{"from":"savings","to":"checking"}"#]).is_empty());
        assert!(found(task, "transfer", &[r#"{"from_account":"A-1","to_account":"A-2"}"#]).is_empty());
        let spanish = "Transfiere 250 euros de C-100 a C-200.";
        assert_eq!(found(spanish, "transferir", &[r#"{"origen":"C-200","destino":"C-100"}"#]).len(), 1);
        assert!(found(spanish, "transferir", &[r#"{"origen":"C-100","destino":"C-200"}"#]).is_empty());
        let trip = "Find trains from Graz to Linz and back.";
        let ways = [r#"{"origin":"Graz","destination":"Linz"}"#, r#"{"origin":"Linz","destination":"Graz"}"#];
        assert!(found(trip, "find_trains", &ways).is_empty());
        assert_eq!(found(trip, "find_trains", &ways[1..]).len(), 1);
        for (task, arguments) in [
            ("Book the return for my trip from Graz to Linz.", r#"{"origin":"Linz","destination":"Graz"}"#),
            ("Buche die Rückfahrt der Reise von Graz nach Linz.", r#"{"von":"Linz","nach":"Graz"}"#),
            ("Reverse the transfer from savings to checking.", r#"{"from":"checking","to":"savings"}"#),
            ("Devuelve la transferencia de C-100 a C-200.", r#"{"origen":"C-200","destino":"C-100"}"#),
        ] {
            assert!(found(task, "transfer", &[arguments]).is_empty(), "{task}");
        }
    }
}
