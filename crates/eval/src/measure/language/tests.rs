//! Tests of the lists of every language with the files in `sentences/`, and of the detection of languages.

use proptest::prelude::*;

use super::detect::{Detected, detect};
use super::*;
use crate::measure::vocabulary::{self, WordMeaning};

/// The sentences of a language: lines under headings `= list +` and `= list -`.
fn sections(language: Language) -> Vec<(String, bool, Vec<&'static str>)> {
    let file = match language {
        Language::English => include_str!("sentences/en.txt"),
        Language::German => include_str!("sentences/de.txt"),
        Language::French => include_str!("sentences/fr.txt"),
        Language::Spanish => include_str!("sentences/es.txt"),
        Language::Portuguese => include_str!("sentences/pt.txt"),
        Language::Italian => include_str!("sentences/it.txt"),
        Language::Chinese => include_str!("sentences/zh.txt"),
        Language::Japanese => include_str!("sentences/ja.txt"),
    };
    let mut sections = Vec::new();
    for line in file.lines() {
        match line.strip_prefix("= ").and_then(|heading| heading.split_once(' ')) {
            Some((list, sign)) => sections.push((list.to_owned(), sign == "+", Vec::new())),
            None => sections.last_mut().expect("a heading first").2.push(line),
        }
    }
    sections
}

/// Reads the text in this language.
fn read(text: &str, language: Language) -> ReadText<'_> {
    ReadText { text, languages: slice_of(language), is_known: true, reading: Rc::default() }
}

/// The matches in a sentence of a section: the name of its list, or the actions or instruments; empty without a match.
fn found(language: Language, list: &str, sentence: &str) -> String {
    let read_text = read(sentence, language);
    let list_if = |found: bool| if found { list } else { "" }.to_owned();
    match list {
        "refusal" => list_if(!read_text.refusals().is_empty()),
        "inability" => list_if(!read_text.inability().is_empty()),
        "hedge" => list_if(!read_text.hedges().is_empty()),
        "invention" => list_if(!read_text.inventions().is_empty()),
        "error" => {
            list_if(read_text.classified(language, [SentenceKind::Error]).any(|(_, kind)| kind.is_some()))
        }
        "agreement" => list_if(read_text.agrees()),
        "withdrawal" => list_if(read_text.withdraws()),
        "consent" => list_if(language.mentions_consent(sentence)),
        "appeal" => {
            list_if(sentence.split(denial::CLAUSE_DELIMITERS).any(|clause| language.begins_appeal(clause)))
        }
        "question" => list_if(read_text.ends_with_question()),
        "writing" => list_if(read_text.asks_for_text()),
        "number" => list_if(read_text.question_for_number().is_some()),
        "source_demand" => list_if(read_text.source_demand().is_some()),
        "memory" => list_if(!read_text.memory_claims().is_empty()),
        "announcement" => list_if(!read_text.announcements().is_empty()),
        "estimate" => list_if(read_text.asks_for_estimate()),
        "nothing" => {
            list_if(read_text.classified(language, [SentenceKind::Nothing]).any(|(_, kind)| kind.is_some()))
        }
        "hypothetical" => {
            let lists = language.lists();
            let sentences = read_text.sentences(language);
            let all = [&lists.refusal, &lists.inability, &lists.invention, &lists.error];
            let stated: Vec<bool> = sentences
                .flat_map(|s| all.map(|list| list.is_conditional(&s)).into_iter().flatten())
                .collect();
            match stated.as_slice() {
                [] => "nothing".to_owned(),
                stated => list_if(stated.iter().all(|is_condition| *is_condition)),
            }
        }
        "abbreviation" => list_if(read_text.sentences(language).count() == 1),
        "contrast" => list_if(read_text.sentences(language).count() > 1),
        "assumed" => match read_text.inventions().as_slice() {
            [] => "nothing".to_owned(),
            inventions => list_if(inventions.iter().any(|i| i.is_assumption)),
        },
        "stopped" | "padding" => {
            let kind = if list == "stopped" { SentenceKind::Stopped } else { SentenceKind::Padding };
            list_if(read_text.classified(language, [kind]).any(|(_, kind)| kind.is_some()))
        }
        "promised" | "offered" => {
            let tense = if list == "promised" { Tense::Promised } else { Tense::Offered };
            let claims = read_text.claims_of_action();
            let claims = claims.iter().filter(|claim| claim.tense == tense);
            claims.map(|claim| claim.action.as_str()).collect::<Vec<_>>().join(" ")
        }
        "source" | "instrument" => {
            let claims = read_text.claims_of_done_action();
            let work: Vec<_> = claims.iter().filter(|claim| claim.action.is_work()).collect();
            match (work.is_empty(), list) {
                (true, _) => "no work".to_owned(),
                (false, "source") => list_if(work.iter().any(|claim| claim.names_source)),
                (false, _) => {
                    work.iter().filter_map(|c| c.instrument.as_deref()).collect::<Vec<_>>().join(" ")
                }
            }
        }
        "claim" => {
            let done = |claim: &&ActionClaim<'_>| claim.tense.is_done();
            let claims = read_text.claims_of_action();
            assert!(claims.iter().filter(done).eq(&read_text.claims_of_done_action()), "{sentence}");
            claims.iter().filter(done).map(|c| c.action.as_str()).collect::<Vec<_>>().join(" ")
        }
        other => panic!("no list {other}"),
    }
}

/// A message for each sentence of a language whose matches are not the expected ones.
fn mismatches(language: Language) -> Vec<String> {
    let mut wrong = Vec::new();
    for (list, fires, sentences) in sections(language) {
        for line in sentences {
            let (wanted, sentence) = match (list.as_str(), fires) {
                ("claim" | "promised" | "offered" | "instrument", true) => line.split_once(": ").unwrap(),
                (_, true) => (list.as_str(), line),
                (_, false) => ("", line),
            };
            let found = found(language, &list, sentence);
            if found != wanted && !(fires && found.split(' ').any(|f| f == wanted)) {
                wrong.push(format!(
                    "{} {list}: {sentence}: found {found:?}, not {wanted:?}",
                    language.as_str()
                ));
            }
        }
    }
    wrong
}

/// The lists whose sentences are in the files.
const LISTS: [&str; 27] = [
    "refusal",
    "inability",
    "hypothetical",
    "contrast",
    "nothing",
    "hedge",
    "invention",
    "assumed",
    "error",
    "agreement",
    "withdrawal",
    "consent",
    "appeal",
    "question",
    "writing",
    "number",
    "source_demand",
    "memory",
    "announcement",
    "estimate",
    "claim",
    "promised",
    "offered",
    "source",
    "instrument",
    "stopped",
    "padding",
];

/// Every language has at least 20 sentences that each list must find, and 20 that it must not find. A text of
/// `abbreviation` must be one sentence, or must not.
#[test]
fn lists_find_their_sentences_and_no_similar_ones() {
    for language in Language::ALL {
        let count = |list: &str, fires| {
            let sections = sections(language);
            let matching = sections.iter().filter(|s| s.0 == list && s.1 == fires);
            matching.map(|s| s.2.len()).sum::<usize>()
        };
        for list in LISTS {
            assert!(count(list, true) >= 20 && count(list, false) >= 20, "{language:?} {list}");
        }
        let dots = [true, false].map(|fires| count("abbreviation", fires));
        assert!(!language.is_spaced() || dots.iter().all(|dots| *dots >= 20), "{language:?} {dots:?}");
    }
    let wrong: Vec<String> = Language::ALL.into_iter().flat_map(mismatches).collect();
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

/// The file of sentences of a language with this suffix.
macro_rules! sentences_of {
    ($language:expr, $suffix:literal) => {
        match $language {
            Language::English => include_str!(concat!("sentences/en.", $suffix, ".txt")),
            Language::German => include_str!(concat!("sentences/de.", $suffix, ".txt")),
            Language::French => include_str!(concat!("sentences/fr.", $suffix, ".txt")),
            Language::Spanish => include_str!(concat!("sentences/es.", $suffix, ".txt")),
            Language::Portuguese => include_str!(concat!("sentences/pt.", $suffix, ".txt")),
            Language::Italian => include_str!(concat!("sentences/it.", $suffix, ".txt")),
            Language::Chinese => include_str!(concat!("sentences/zh.", $suffix, ".txt")),
            Language::Japanese => include_str!(concat!("sentences/ja.", $suffix, ".txt")),
        }
    };
}

/// The sentences of a language, each with the closed classes of its words: `class class: sentence`.
fn classified(language: Language) -> impl Iterator<Item = (&'static str, &'static str)> {
    let file = sentences_of!(language, "classes");
    file.lines().map(|line| line.split_once(": ").expect("classes and a sentence"))
}

/// Every class has words in at least 20 sentences of each language, and none in 20 others.
#[test]
fn closed_classes_are_those_of_their_sentences() {
    let mut wrong = Vec::new();
    for language in Language::ALL {
        let mut count = [0; WordClass::ALL.len()];
        let mut all = 0;
        for (expected, sentence) in classified(language) {
            let table = &language.lists().classes;
            let words = sentence.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
            // Some words are found only by `WordClassTable::name`.
            let found = words.fold(table.places(sentence).all(), |all, word| all.union(table.name(&word).0));
            let found = format!("{found:?}");
            if found != expected {
                wrong.push(format!("{}: {sentence}: {found}, not {expected}", language.as_str()));
            }
            all += 1;
            expected.split_whitespace().for_each(|name| {
                let position = WordClass::ALL.iter().position(|class| class.as_str() == name);
                count[position.unwrap_or_else(|| panic!("no class {name}"))] += 1;
            });
        }
        for class in WordClass::ALL {
            let class_count = count[class as usize];
            if class_count < 20 || all - class_count < 20 {
                wrong.push(format!("{language:?} {class:?}: {class_count} of {all}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every group of the grammar has words in at least 20 English sentences, and none in 20 others.
#[test]
fn groups_of_grammar_are_those_of_their_sentences() {
    let lines: Vec<_> = include_str!("sentences/en.grammar.txt").lines().collect();
    let mut wrong = Vec::new();
    let mut count = [0; GrammarGroup::ALL.len()];
    for line in &lines {
        let (names, sentence) = line.split_once(": ").expect("groups and a sentence");
        let lower = sentence.to_lowercase();
        let words = || lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let has = |group: &&GrammarGroup| words().any(|word| Language::English.is_in_group(word, **group));
        let found: Vec<&str> = GrammarGroup::ALL.iter().filter(has).map(|group| group.as_str()).collect();
        let mut wanted: Vec<&str> = names.split(' ').filter(|name| *name != "none").collect();
        wanted.sort_by_key(|name| GrammarGroup::ALL.iter().position(|group| group.as_str() == *name));
        if found != wanted {
            wrong.push(format!("{sentence}: {}, not {names}", found.join(" ")));
        }
        GrammarGroup::ALL.iter().filter(has).for_each(|group| count[*group as usize] += 1);
    }
    for group in GrammarGroup::ALL {
        let group_count = count[group as usize];
        if group_count < 20 || lines.len() - group_count < 20 {
            wrong.push(format!("{group:?}: {group_count} of {}", lines.len()));
        }
    }
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

/// The sentences of a language, each with the meanings of the vocabulary whose words it contains:
/// `meaning ~meaning: text`. After `~` is a meaning whose word has another sense in the sentence, or is of another
/// language.
fn sentences_with_meanings(language: Language) -> impl Iterator<Item = (&'static str, &'static str)> {
    let file = sentences_of!(language, "meanings");
    file.lines().map(|line| line.split_once(": ").expect("meanings and a sentence"))
}

/// Every meaning has words in at least 20 sentences of each language with words for it, and none in 20 others.
#[test]
fn meanings_are_those_of_their_sentences() {
    let mut wrong = Vec::new();
    for language in Language::ALL {
        let sentences: Vec<_> = sentences_with_meanings(language).collect();
        for (names, sentence) in &sentences {
            let found = vocabulary::find(sentence, &WordMeaning::ALL);
            let is_found = |meaning: &&WordMeaning| found.iter().any(|(found, _)| found == *meaning);
            let found: Vec<&str> =
                WordMeaning::ALL.iter().filter(is_found).map(|meaning| meaning.as_str()).collect();
            let found = found.join(" ");
            if found != names.replace('~', "") {
                wrong.push(format!("{}: {sentence}: {found}, not {names}", language.as_str()));
            }
        }
        for meaning in WordMeaning::ALL {
            let has = |(names, _): &&(&str, &str)| names.split(' ').any(|name| name == meaning.as_str());
            let count = sentences.iter().filter(has).count();
            let has_words = meaning != WordMeaning::Of || language.is_spaced();
            let is_enough = if has_words { count >= 20 } else { count == 0 };
            assert!(is_enough && sentences.len() - count >= 20, "{language:?} {meaning:?}: {count}");
        }
    }
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

/// The sentences of a language, each with the roles of its words in instructions: `date opposite: sentence`. Content
/// words are in brackets.
fn instructions(language: Language) -> impl Iterator<Item = (&'static str, &'static str)> {
    let file = match language {
        Language::English => include_str!("sentences/en.requests.txt"),
        Language::German => include_str!("sentences/de.requests.txt"),
        Language::French => include_str!("sentences/fr.requests.txt"),
        Language::Spanish => include_str!("sentences/es.requests.txt"),
        Language::Portuguese => include_str!("sentences/pt.requests.txt"),
        Language::Italian => include_str!("sentences/it.requests.txt"),
        Language::Chinese | Language::Japanese => "",
    };
    file.lines().map(|line| line.split_once(": ").expect("roles of words, and a sentence"))
}

/// A sentence in the form of [`instructions`], with its roles and with brackets around content words.
fn annotated(words: &RequestWords, sentence: &str) -> String {
    let (mut date, mut directed, mut negation, mut opposite) = (false, false, false, false);
    let mut marked = String::new();
    let mut mark = |word: &str| {
        let lower = word.to_lowercase();
        date |= words.is_date(&lower);
        directed |= words.is_directed(&lower);
        negation |= words.negates(&lower);
        opposite |= words.side(&lower).is_some();
        let has_content = word.starts_with(char::is_alphabetic) && words.has_content(&lower);
        marked.push_str(&if has_content { format!("[{word}]") } else { word.to_owned() });
    };
    for part in sentence.split_inclusive(|c: char| !c.is_alphanumeric() && c != '\'') {
        let word = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        match words.negates(&word.to_lowercase()) {
            true => mark(word),
            false => word.split_inclusive('\'').for_each(|word| {
                let letters = word.trim_end_matches('\'');
                mark(letters);
                mark(&word[letters.len()..]);
            }),
        }
        mark(&part[word.len()..]);
    }
    let found = [(date, "date"), (directed, "directed"), (negation, "negation"), (opposite, "opposite")];
    let found: Vec<&str> =
        found.into_iter().filter(|(is_found, _)| *is_found).map(|(_, name)| name).collect();
    format!("{}: {marked}", found.join(" "))
}

/// In each language with spaces, at least 20 sentences have a word of each role, and 20 have none.
#[test]
fn words_for_instructions_are_those_of_their_sentences() {
    let mut wrong = Vec::new();
    for language in Language::ALL {
        let Some(words) = &language.lists().requests else { continue };
        let mut found_names = Vec::new();
        for (names, marked) in instructions(language) {
            let found = annotated(words, &marked.replace(['[', ']'], ""));
            found_names.push(names);
            if found != format!("{names}: {marked}") {
                wrong.push(format!("{}: {found}\n not {names}: {marked}", language.as_str()));
            }
        }
        for name in ["date", "directed", "negation", "opposite"] {
            let (with, without): (Vec<&str>, Vec<&str>) =
                found_names.iter().partition(|names| names.split(' ').any(|found| found == name));
            assert!(with.len() >= 20 && without.len() >= 20, "{language:?} {name}: {}", with.len());
        }
    }
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn words_of_closed_classes_have_values_and_positions() {
    let places = |language: Language, text: &str| {
        let places = language.lists().classes.places(text);
        let shown = |place: &ClassifiedWord| {
            format!("{} {:?} {}", &text[place.at.clone()], place.classes, place.value)
        };
        places.iter().map(shown).collect::<Vec<_>>()
    };
    let english = "In May I may order no more than three. May I? Not_not /no path";
    assert_eq!(
        places(Language::English, english),
        ["May month 5", "may modal 0", "no more than bound comparison 1", "three number 3", "May modal 0"]
    );
    assert_eq!(
        places(Language::German, "Übermorgen, nicht morgen früh"),
        ["Übermorgen relative_day 0", "nicht negation 0", "morgen relative_day 0"]
    );
    assert_eq!(
        places(Language::Chinese, "周三不过两张"),
        ["周三 weekday 3", "不过 contrast 0", "两张 number 2"]
    );
    assert_eq!(Language::Italian.lists().classes.value(WordClass::Month, "luglio"), Some(7));
}

/// Some single sentences have too few function words; at most one percent is taken for another language.
#[test]
fn language_of_one_sentence_is_recognised_by_its_function_words() {
    for language in Language::ALL {
        let mut recognised = 0;
        let mut mistaken = Vec::new();
        // Replies such as "yes, please" have no function words, and are read in the language of the question.
        let is_reply = |list: &str| ["agreement", "withdrawal", "nothing"].contains(&list);
        let selected = sections(language).into_iter().filter(|s| !is_reply(&s.0));
        let sentences: Vec<&str> = selected.flat_map(|s| s.2).collect();
        for sentence in &sentences {
            match detect(sentence) {
                Detected::Supported(found) if found == language => recognised += 1,
                Detected::TooFewWords | Detected::Unclear(_) | Detected::NoWords => {}
                other => mistaken.push(format!("{language:?}: {sentence}: {other:?}")),
            }
        }
        let count = sentences.len();
        assert!(recognised * 100 >= count * 80, "{language:?}: {recognised} of {count}");
        assert!(mistaken.len() * 100 <= count, "{language:?}:\n{}", mistaken.join("\n"));
    }
}

#[test]
fn other_languages_and_texts_without_words_are_not_recognised() {
    let other = [
        "Ik heb uw reservering geannuleerd en het bedrag is teruggestort op uw rekening.",
        "Jag har avbokat din resa och pengarna är tillbaka på ditt konto inom tre dagar.",
        "Anul·laré la reserva i us enviaré un missatge amb els detalls del vol.",
        "Nie mogę znaleźć tej informacji, ale może pan zapytać w urzędzie.",
        "Rezervasyonunuz iptal edildi ve bu ücret için bir iade yapılacak.",
        "Ваш заказ отменён, деньги вернутся на карту.",
        "تم إلغاء الحجز",
        "예약이 취소되었습니다.",
    ];
    for text in other {
        assert_eq!(Language::from_text(text), None, "{text}");
    }
    for text in ["", "42", "OK", "{\"id\": 17}", "Paris"] {
        assert_eq!(Language::from_text(text), None, "{text}");
    }
    // Neither a text that hints at another language nor prose of unknown words is read as English.
    let swahili = "Ninaomba msaada wenu kuhusu safari yangu kwa sababu sikupata tiketi ambayo nililipia jana asubuhi \
                   kupitia simu yangu ya mkononi wala sijui nifanye nini sasa hivi.";
    for text in ["Bestellung storniert und erstattet.", "Commande annulée et remboursée.", swahili] {
        assert!(matches!(detect(text), Detected::Unclear(_)), "{text}: {:?}", detect(text));
    }
    // The first letters of identifiers are not read as Polish words.
    assert_eq!(detect("Cancel W-4411, W-4412 and W-4413."), Detected::TooFewWords);
    for text in ["No trains found.", "Order W-77: shipped, express.", "lamp, chair, table"] {
        assert_eq!(detect(text), Detected::TooFewWords, "{text}");
    }
    let code = "def add(a, b):\n    return a + b\nprint(add(1, 2))";
    assert_eq!(Language::from_text(code), None);
}

#[test]
fn language_that_both_texts_hint_at_is_recognised() {
    let detected = |text: &str, fallback| Language::detected(text, fallback, &Memo::new());
    let (question, answer) = ("Wer leitet den Kurs K-312?", "Den Kurs K-312 leitet Pichler.");
    assert_eq!(detected(answer, None), None);
    assert_eq!(detected(answer, Some(question)), Some(Language::German));
    assert_eq!(detected(answer, Some("Who leads the course, and where is it?")), Some(Language::English));
    assert_eq!(detected("W-77: shipped", Some(question)), None);
}

#[test]
fn tense_distinguishes_done_promised_and_offered_actions() {
    let tense = |text: &str| {
        let read_text = read(text, Language::English);
        read_text.claims_of_action().first().map(|c| (c.action, c.tense))
    };
    assert_eq!(tense("I've cancelled it."), Some((Action::Cancel, Tense::Done)));
    assert_eq!(tense("Your order has been cancelled."), Some((Action::Cancel, Tense::DonePassive)));
    assert_eq!(tense("I will refund the ticket."), Some((Action::Refund, Tense::Promised)));
    assert_eq!(tense("Shall I book the seat?"), Some((Action::Book, Tense::Offered)));
    assert_eq!(tense("I can send it by post."), Some((Action::Send, Tense::Offered)));
}

#[test]
fn code_and_quotations_are_ignored() {
    let memo = Memo::new();
    for text in [
        "The handler is this:\n```\nprint('I cannot help with that.')\n```\nIt is called by the server on each request.",
        "The clerk told her: \"I cannot help you with that.\" She then wrote to the bank.",
    ] {
        let text = Text::from(text);
        assert!(ReadText::new_counted(&text, None, &memo).is_known());
        assert!(ReadText::new_counted(&text, None, &memo).refusals().is_empty(), "{text}");
    }
}

#[test]
fn only_the_beginning_and_the_end_of_a_long_text_are_read() {
    let middle = "The valley is green. ".repeat(2000);
    let memo = Memo::new();
    let text = |head: &str, tail: &str| Text::from(format!("{head} {middle}\n{tail}").as_str());
    for (head, tail) in [("I cannot help you with that.", ""), ("", "I cannot help you with that.")] {
        assert_eq!(
            ReadText::new_counted(&text(head, tail), None, &memo).refusals(),
            ["I cannot help you with that."]
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read(text in "(\\PC|\n|`|\"|。|，){0,300}", at in 0usize..8) {
        let read_text = read(&text, Language::ALL[at % Language::ALL.len()]);
        let claims = read_text.claims_of_action();
        prop_assert!(claims.iter().filter(|c| c.tense.is_done()).eq(&read_text.claims_of_done_action()));
        let places = Language::ALL[at % Language::ALL.len()].lists().classes.places(&text);
        prop_assert!(places.iter().all(|place| text.get(place.at.clone()).is_some()));
        let _ = (read_text.refusals(), read_text.ends_with_question(), read_text.agrees());
        for language in read_text.languages() {
            prop_assert!(read_text.classified(language, [SentenceKind::Refusal]).all(|(s, _)| text.contains(s.text)));
        }
        let _ = detect(&text);
    }
}

proptest! {
    #[test]
    fn quoted_json_states_nothing(
        strings in prop::collection::vec("(No results found\\.|I could not find it!|unknown|[^\"\\\\\\n]{0,20}){1,3}", 1..5),
        at in 0usize..8,
    ) {
        let member = |string: &String| format!("{{\"{string}\": [\"{string}\", null, 4.5], \"{string}\":false}}");
        let text = format!("[{}, true]", strings.iter().map(member).collect::<Vec<_>>().join(","));
        prop_assert!(is_quoted_json(&text));
        let kinds = [SentenceKind::Inability, SentenceKind::Nothing];
        let language = Language::ALL[at];
        prop_assert!(read(&text, language).classified(language, kinds).all(|(_, kind)| kind.is_none()));
    }
}

#[test]
fn json_with_escapes_or_on_several_lines_is_read() {
    for text in
        [r#"{"a":"\"no results\" found"}"#, "{\"a\":\n1}", "{'a': 1}", "[no results]", "\"a\"", "{\"a"]
    {
        assert!(!is_quoted_json(text), "{text}");
    }
}

#[test]
fn quoted_lines_are_no_statements() {
    let claims = |text: &str| ReadText::new(text, None, &Memo::new()).claims_of_done_action().len();
    assert_eq!(claims("> I have cancelled the order.\n> I have sent it."), 0);
    assert_eq!(
        claims("Your text:\n\n  > I have cancelled the order.\n>\n> I have sent it.\n\nIs that right?"),
        0
    );
    let after = "> Please cancel it.\nI have cancelled the order.";
    let memo = Memo::new();
    let found = ReadText::new(after, None, &memo).claims_of_done_action();
    assert_eq!(found[0].sentence, "I have cancelled the order.");
    assert_eq!(claims("I have cancelled the order since 5 > 3.\n>100 were left."), 1);
}
