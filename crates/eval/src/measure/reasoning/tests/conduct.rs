//! Scenarios about plans, tools and results, each with similar ones without a defect.

use super::*;
use crate::measure::defects::Defect;

const PLAN: [&str; 3] = [
    "Use web_search to locate the almanac's page on the web.",
    "Read both heights there.",
    "Give the difference.",
];

fn defects(trace: &AgentTrace) -> Vec<(Idx, Defect)> {
    let llms = trace.views.iter().enumerate().filter(|(_, r)| r.kind == Kind::Llm).map(|(at, _)| at);
    llms.filter_map(|at| outcome_at(trace, at).ok().map(|m| (at, m)))
        .flat_map(|(at, m)| m.findings.into_iter().filter_map(move |f| Some((at, f.defect?))))
        .collect()
}

fn has(trace: &AgentTrace, defect: Defect) -> bool {
    defects(trace).iter().any(|(_, d)| *d == defect)
}

fn planned() -> Script {
    Script::new(TASK)
        .system("You have tools: web_search, visit_page.")
        .tools(&TOOLS)
        .says("1. ...")
        .plan(&PLAN)
}

#[test]
fn answer_without_a_planned_lookup_is_found_with_its_step() {
    let trace = planned().answers("Mount Elbrus is the taller one.").build();
    assert_eq!(defects(&trace).len(), 1, "{:?}", defects(&trace));
    let found = outcome_at(&trace, last_llm(&trace)).map(|measured| measured.findings).unwrap_or_default();
    let step = found.iter().find(|f| f.defect == Some(Defect::LookupsSkipped)).unwrap();
    assert_eq!(step.quote, PLAN[0]);
    // A number without a source is the same failure, and more specific.
    let invented = planned().answers("According to the almanac it is 836 metres.").build();
    assert!(matches!(&defects(&invented)[..], [(_, Defect::UnsupportedFact)]), "{:?}", defects(&invented));
}

#[test]
fn executed_plan_admission_and_riddle_have_no_findings() {
    let worked = planned()
        .calls("", &[("web_search", r#"{"query":"almanac"}"#)])
        .returns(PAGE)
        .answers("Mount Elbrus is 836 metres taller.")
        .build();
    let admitted = planned().answers("I could not find the page.").build();
    let riddle = Script::new("How many vampires live there, if each of the 100 says that one is human?")
        .tools(&TOOLS)
        .says("plan")
        .plan(&["Read the statements again.", "Check each case.", "Verify the result."])
        .answers("All 100 are vampires.")
        .build();
    let cut_short = planned().answers("836 metres.").incomplete().build();
    for trace in [worked, admitted, riddle, cut_short] {
        assert!(!has(&trace, Defect::LookupsSkipped), "{:?}", defects(&trace));
    }
}

#[test]
fn answer_after_empty_results_is_found_unless_it_admits_the_lack() {
    let helped = |answer: &str| {
        Script::new(TASK)
            .calls("", &[("search_agent", r#"{"task":"find the heights"}"#)])
            .enter("find the heights")
            .answers("### 1. Outcome\nI was unable to locate the page. I tried many queries.")
            .leave()
            .answers(answer)
            .build()
    };
    let found = defects(&helped("Mount Elbrus is the taller one."));
    assert!(matches!(&found[..], [(_, Defect::AnswerUnsupported)]), "{found:?}");
    let admitted = helped("The page could not be found, so there is no answer.");
    assert!(!has(&admitted, Defect::AnswerUnsupported));
}

#[test]
fn answer_without_specific_values_after_empty_results_is_found_if_it_states_much() {
    let searched = |task: &str| {
        let empty = r#"{"hits":0,"recalls":[]}"#;
        Script::new(task).calls("", &[("search_recalls", r#"{"product":"kettle"}"#)]).returns(empty)
    };
    let recalled = "Yes, the kettle was recalled because its handle loosens over boiling water. Please unplug the appliance \
                    and bring it back; the shop refunds the whole price without a receipt.";
    let is_found = |script: Script| has(&script.build(), Defect::AnswerUnsupported);
    assert!(is_found(searched("Is there a recall on my kettle?").answers(recalled)));
    // A turn of a dialogue.
    let turns = searched("Is there a recall on my kettle?").says(recalled).user("And on my toaster?");
    let turns = turns
        .calls("", &[("search_recalls", r#"{"product":"toaster"}"#)])
        .returns(r#"{"hits":0,"recalls":[]}"#);
    assert!(is_found(turns.answers("I found no recall of a toaster.")));
    for answer in [
        "There is no recall of your kettle. If the handle is loose, please stop using the appliance and show the shop your \
         receipt, since the guarantee covers broken parts.",
        "Good news: your kettle is safe to use.",
        "I could not find a recall. The manufacturer may know more about loose handles, burnt elements and melted switches.",
    ] {
        assert!(!is_found(searched("Is there a recall on my kettle?").answers(answer)), "{answer}");
    }
    let letter = "Dear neighbours, our kettle parties return this autumn with scones, marmalade, singing and plenty of gossip.";
    assert!(!is_found(searched("Write a letter about kettles.").answers(letter)));
}

const ASK: &str =
    "I will ask the search_agent for it.\n```py\ntask = \"Find the page of the almanac\"\nprint(task)\n```";

#[test]
fn announced_call_that_is_only_printed_is_one_finding_a_turn() {
    let trace = Script::new(TASK)
        .system("Your team: search_agent, who searches.")
        .says(ASK)
        .user("Observation:\nFind the page of the almanac")
        .says(ASK)
        .user("Observation:\nFind the page of the almanac")
        .answers("I give up.")
        .build();
    let found = defects(&trace);
    assert_eq!(found.iter().map(|(_, d)| *d).collect::<Vec<_>>(), [Defect::AnnouncedCallMissing; 2]);
}

#[test]
fn announced_call_that_is_also_claimed_fails_as_the_false_claim_alone() {
    let announced = |claim: &str| {
        let script = Script::new("Which invoices of May are open?").tools(&["ledger_search", "send_mail"]);
        let answer = format!("I will now use the ledger_search tool. {claim} Invoice 17 is open.");
        let (trace, memo) = (script.answers(&answer).build(), Memo::new());
        let review = Review::get(&trace, &memo);
        let found = review.llm_reviews.values().flat_map(|review| &review.findings);
        let missing: Vec<bool> = found
            .filter(|finding| finding.defect == Some(Defect::AnnouncedCallMissing))
            .map(|finding| finding.is_note())
            .collect();
        (missing, has(&trace, Defect::FalseClaim))
    };
    assert_eq!(announced("I verified it with ledger_search."), (vec![true], true));
    assert_eq!(announced("I verified it with send_mail."), (vec![false], true), "another tool");
    assert_eq!(announced("One moment."), (vec![false], false));
}

#[test]
fn announced_last_step_is_a_finding_unless_it_depends_on_the_user() {
    let ended = |words: &str| {
        Script::new("Send the invoice to Mira.")
            .tools(&["email", "find_invoice"])
            .calls("", &[("find_invoice", "{}")])
            .returns("invoice 17")
            .answers(words)
            .build()
    };
    for words in ["Invoice 17 is the one. I will now call the `email` tool.", "Let me use email for it."] {
        assert!(has(&ended(words), Defect::AnnouncedCallMissing), "{words}");
    }
    for words in [
        "Once you confirm, I will call the email tool.",
        "Shall I use email? I will ask Mira otherwise.",
        "I will use the invoice of March.",
        "The email is sent.",
    ] {
        assert!(!has(&ended(words), Defect::AnnouncedCallMissing), "{words}");
    }
}

#[test]
fn announced_call_that_is_made_is_not_a_finding() {
    let called = ASK.replace("print(task)", "search_agent(task=task)");
    let in_code = Script::new(TASK).system("Your team: search_agent.").says(&called).answers("836 m").build();
    let asked = Script::new(TASK)
        .tools(&["web_search"])
        .calls("I will use web_search for it.", &[("web_search", r#"{"query":"a"}"#)])
        .returns(PAGE)
        .answers("836 m")
        .build();
    let unknown = Script::new(TASK).says(ASK).answers("836 m").build();
    for trace in [in_code, asked, unknown] {
        assert!(!has(&trace, Defect::AnnouncedCallMissing), "{:?}", defects(&trace));
    }
}

const SHELF: &str = r#"{"count":2,"items":[{"item_id":"90010001","price":12.5,"color":"red","available":true},{"item_id":"90010002","price":9.0,"color":"blue","available":true}]}"#;

fn answered_run(task: &str, result: &str, answer: &str) -> AgentTrace {
    Script::new(task)
        .calls("", &[("search", r#"{"type":"lamp","available_only":true}"#)])
        .returns(result)
        .answers(answer)
        .build()
}

#[test]
fn answers_that_contradict_the_result_are_found() {
    let one = r#"{"items":[{"item_id":"90010001","color":"red"}]}"#;
    let state =
        r#"{"items":[{"item_id":"90010001","state":"on_sale"},{"item_id":"90010002","state":"on_sale"}]}"#;
    for (task, result, answer) in [
        ("Which lamps do you have?", SHELF, "No items match that filter."),
        ("What is the cheapest lamp?", SHELF, "The cheapest lamp is 90010001 at 12.5."),
        ("How many lamps are there?", SHELF, "There are 7 lamps."),
        ("Does lamp 90010001 have color=red?", one, "No, it does not."),
        ("Does lamp 90010001 have color=green?", one, "Yes, it does."),
        ("Does lamp 90010001 have the color red?", one, "No, it does not."),
        ("Is the color green?", one, "Yes, it is."),
        ("Is the lamp's state \"on sale\"?", state, "No, it is not."),
    ] {
        let trace = answered_run(task, result, answer);
        assert!(has(&trace, Defect::ContradictsResult), "{task} {answer} {:?}", defects(&trace));
    }
    let invented = answered_run("Which lamp is blue?", SHELF, "It is item 90019999.");
    assert!(has(&invented, Defect::ContradictsResult));
}

#[test]
fn consistent_or_ambiguous_answers_have_no_findings() {
    let one = r#"{"items":[{"item_id":"90010001","color":"red"}]}"#;
    let state =
        r#"{"items":[{"item_id":"90010001","state":"on_sale"},{"item_id":"90010002","state":"sold"}]}"#;
    for (task, result, answer) in [
        ("Which available lamps cost more than 80?", r#"{"items":[]}"#, "No items match that filter."),
        ("What is the cheapest lamp?", SHELF, "The cheapest lamp is 90010002 at 9.0."),
        ("What is the cheapest lamp?", SHELF, "90010002 at 9.0, against 90010001 at 12.5."),
        ("How many lamps are there?", SHELF, "There are 2 lamps."),
        ("Does lamp 90010001 have color=red?", one, "Yes, it does."),
        ("Does lamp 90010001 have the color red?", one, "Yes, it does."),
        ("Is the color green?", one, "No, it is not."),
        // Of several records the question may be about any.
        ("Is the lamp's state \"on sale\"?", state, "No, it is not."),
        // The value is not the field's.
        ("Does lamp 90010001 come in red paper?", one, "No, it does not."),
        ("Is the lamp nice?", one, "No, it is not."),
    ] {
        let trace = answered_run(task, result, answer);
        assert!(!has(&trace, Defect::ContradictsResult), "{task} {answer} {:?}", defects(&trace));
    }
}

/// A turn of a dialogue that the user answers, after one lookup.
fn dialogue_turn(task: &str, result: &str, turn: &str) -> AgentTrace {
    Script::new(task)
        .tools(&["get_record"])
        .calls("", &[("get_record", "{}")])
        .returns(result)
        .says(turn)
        .user("Thanks. Please go on.")
        .answers("You are welcome.")
        .build()
}

#[test]
fn turns_of_a_dialogue_are_compared_with_the_results_before_them() {
    let lamp = r#"{"name":"Lamp 5","sku":"L-5512","available":false}"#;
    let trace =
        dialogue_turn("Is Lamp 5 available?", lamp, "Lamp 5 is available. Would you like to order it?");
    let llm = trace.agents[0].llms[1];
    assert_eq!(defects(&trace), [(llm, Defect::ContradictsResult)]);
    assert!(!has(
        &dialogue_turn("Is Lamp 5 available?", lamp, "Lamp 5 is not available."),
        Defect::ContradictsResult
    ));
    let seats = r#"{"train":"RX 214","status":"available","seats":2}"#;
    let few =
        dialogue_turn("Four seats on RX 214.", seats, "There are not enough seats available on RX 214.");
    assert!(!has(&few, Defect::ContradictsResult));
}

/// A dialogue of two turns after one lookup: the first text of the model, and the answer to the user's reply.
fn two_turns(task: &str, result: &str, first: &str, reply: &str, answer: &str) -> AgentTrace {
    Script::new(task)
        .tools(&["get_record"])
        .calls("", &[("get_record", "{}")])
        .returns(result)
        .says(first)
        .user(reply)
        .answers(answer)
        .build()
}

#[test]
fn figures_of_an_earlier_turn_are_known_in_the_next_one() {
    let account = r#"{"balance": 2480.55, "fee": 45.0, "quotes": [{"kilns": 3, "each": 207.4}]}"#;
    let unsupported = |first: &str, answer: &str| {
        let trace = two_turns("Order three kilns.", account, first, "Yes. What is left then?", answer);
        has(&trace, Defect::UnsupportedFact)
    };
    let offer = "Three kilns are 622.20, with the fee 667.20 in total. Shall I order them?";
    // 667.20 is derived from the result, and the rest from 667.20.
    assert!(!unsupported(offer, "Your balance is 1,813.35 afterwards."));
    assert!(!unsupported(offer, "As said, it is 667.20 in total."));
    assert!(unsupported(offer, "Your balance is 1,713.35 afterwards."));
    // An invented figure is not known because the model said it before.
    let invented = "With the deposit of 731.90 it is fine. Shall I order them?";
    assert!(unsupported(invented, "The deposit is 731.90."));
    assert!(unsupported(invented, "Without the deposit, 1,748.65 are left."));
    // The rest of 100 %.
    let quota = "{\"requests\": 43190, \"failed\": 33800, \"limit\": 61000}";
    let trace = two_turns(
        "How much is used?",
        quota,
        "About 78.3 % of the quota is used.",
        "And left?",
        "About 21.7 %.",
    );
    assert!(!has(&trace, Defect::UnsupportedFact));
    // Most figures of the table follow, and the third row is calculated from prices that are not compared.
    let table =
        "| Plan | Year |\n|---|---|\n| A | 2,488.80 |\n| B | 667.20 |\n| C | 1,493.25 |\n\nWhich one?";
    assert!(!unsupported(table, "C is 1,493.25 a year, and A is 995.55 more."));
}

#[test]
fn figures_from_words_days_and_magnitudes_are_supported() {
    let unsupported = |task: &str, arguments: &str, result: &str, answer: &str| {
        let trace = Script::new(task)
            .tools(&["look_up"])
            .calls("", &[("look_up", arguments)])
            .returns(result)
            .answers(answer)
            .build();
        has(&trace, Defect::UnsupportedFact)
    };
    let lease = r#"{"clause": "The deposit is four months' rent (EUR 5,160)."}"#;
    let rent = |answer| unsupported("What is the rent?", "{}", lease, answer);
    assert!(!rent("The deposit of 5,160 is four months' rent, so the rent is 1,290 a month."));
    assert!(rent("The deposit of 5,160 is four months' rent, so the rent is 1,390 a month."));

    let orders = r#"{"orders": [{"id": "A-7"}, {"id": "A-9"}]}"#;
    let since =
        |answer| unsupported("Which orders did we get in 2025?", r#"{"from": "2025-03-03"}"#, orders, answer);
    assert!(!since("Since 1 January 2025 there were A-7 and A-9."));
    assert!(!since("Since 3 March 2025 there were A-7 and A-9."));
    assert!(since("Since 14 May 2025 there were A-7 and A-9."));
    let range = r#"{"query": "select n from t where day >= '2031-01-01' and day < '2031-04-01'"}"#;
    let counted = |answer| unsupported("How many orders in Q1?", range, r#"{"n": 4120}"#, answer);
    assert!(!counted("Q1 2031 had 4,120 orders."));
    assert!(counted("Q1 2029 had 4,120 orders."));

    let trips = r#"[{"city": "Pune", "inr": "1,31,500"}, {"city": "Surat", "inr": "2,48,500"}]"#;
    let spent = |answer| unsupported("How much was spent in lakh?", "{}", trips, answer);
    assert!(!spent("₹3.80 lakh in total, of which ₹1.315 lakh in Pune."));
    assert!(spent("₹4.30 lakh in total, of which ₹1.715 lakh in Pune."));

    let lift = r#"{"inspected": "2026-06-06", "days": 21, "if_weekend": "next business day"}"#;
    let due = |answer| unsupported("When is the lift inspected again?", "{}", lift, answer);
    assert!(!due("On Monday, 29 June 2026, since 21 days end on Saturday, 27 June 2026."));
    assert!(due("On Tuesday, 30 June 2026."));
    let lease = r#"{"start": "2024-09-01", "term_months": 24, "notice": "three months before the end"}"#;
    let notice = |answer| unsupported("By when must notice be given?", "{}", lease, answer);
    assert!(!notice("The term ends on 31 August 2026, so that notice is due by 31 May 2026."));
    assert!(notice("The term ends on 31 August 2026, so that notice is due by 14 April 2026."));

    let power =
        r#"{"usage": {"day": 310, "night": 190}, "plans": [{"day": 0.33, "night": 0.16, "fee": 13.5}]}"#;
    let cost = |answer| unsupported("How much would the plan cost?", "{}", power, answer);
    assert!(!cost("It would have been 146.20 in total."));
    assert!(cost("It would have been 164.20 in total."));
    let meter = r#"{"from": {"m3": 4120}, "to": {"m3": 4210}, "kwh_per_m3": 11.2}"#;
    let used = |answer| unsupported("How much gas in kWh?", "{}", meter, answer);
    assert!(!used("90 m3, which is 1,008 kWh."));
    assert!(used("90 m3, which is 1,108 kWh."));
    let missed = r#"{"days": 40, "missed": {"Ana": 2, "Ben": 6, "Cem": 3, "Dee": 1, "Eli": 0, "Fay": 9, "Gil": 5}, "late": {"Ana": 7, "Fay": 11}}"#;
    let share = |answer| unsupported("How much of the time was Ben there?", "{}", missed, answer);
    assert!(!share("Ben was there 85 % of the time."));
    assert!(share("Ben was there 83 % of the time."));

    let balance = |task, answer| unsupported(task, "{}", r#"{"balance": 340.75}"#, answer);
    for (task, right, wrong) in [
        ("How high is my balance?", "Your balance is over 300 EUR.", "Your balance is over 400 EUR."),
        ("How high is my balance?", "It is at most 400 EUR.", "It is at most 300 EUR."),
        ("Wie hoch ist mein Guthaben?", "Ihr Guthaben ist über 300 €.", "Ihr Guthaben ist über 400 €."),
        ("Quel est mon solde ?", "Vous avez plus de 300 €.", "Vous avez plus de 400 €."),
        ("¿Cuál es mi saldo?", "Tienes más de 300 €.", "Tienes más de 400 €."),
        ("我的余额是多少？", "您的余额超过300欧元。", "您的余额超过400欧元。"),
        ("残高はいくらですか？", "残高は300ユーロ以上あります。", "残高は400ユーロ以上あります。"),
    ] {
        assert!(!balance(task, right), "{right}");
        assert!(balance(task, wrong), "{wrong}");
    }

    let log = r#"{"stdout": "....\\n148 passed, 2 skipped", "note": "\\u20ac612 for runners"}"#;
    let tests = |answer| unsupported("How many tests passed, and what do runners cost?", "{}", log, answer);
    assert!(!tests("148 tests passed; runners cost €612."));
    assert!(tests("158 tests passed; runners cost €672."));
}

#[test]
fn some_of_the_cheapest_need_not_be_the_cheapest() {
    let rooms = r#"[{"name":"Ridge","price":80},{"name":"Valley","price":70}]"#;
    let contradicts =
        |turn: &str| has(&dialogue_turn("Which rooms are there?", rooms, turn), Defect::ContradictsResult);
    assert!(contradicts("Ridge is the cheapest room."));
    assert!(!contradicts("Ridge is one of the cheapest rooms."));
}

#[test]
fn state_that_another_record_has_is_found() {
    let result = r##"[{"ticket":"#T-4411","status":"resolved"},{"ticket":"#T-4412","status":"waiting"}]"##;
    let contradicts =
        |turn: &str| has(&dialogue_turn("Which tickets do I have?", result, turn), Defect::ContradictsResult);
    assert!(contradicts("Resolved tickets: T-4411 and T-4412. The resolved ticket T-4412 stays as it is."));
    assert!(contradicts("Ticket T-4411 is waiting."));
    for turn in [
        "Ticket T-4411 is resolved, and T-4412 is waiting.",
        "Ticket T-4412 is not resolved.",
        "Ticket T-4412 will be resolved by tomorrow.",
        "Once it is resolved, T-4412 can be closed.",
    ] {
        assert!(!contradicts(turn), "{turn}");
    }
}

#[test]
fn count_of_items_with_a_flag_is_compared_with_the_flags() {
    let rooms = r#"{"rooms":{"101":{"floor":"ground","vacant":true},"102":{"floor":"ground","vacant":true},
        "201":{"floor":"first","vacant":false}}}"#;
    let contradicts =
        |task: &str, turn: &str| has(&dialogue_turn(task, rooms, turn), Defect::ContradictsResult);
    assert!(contradicts("Tell me about the rooms.", "There are 3 vacant rooms."));
    assert!(contradicts("How many rooms are vacant?", "There are 1 vacant rooms in the house."));
    assert!(!contradicts("How many rooms are vacant?", "There are 2 vacant rooms."));
    assert!(!contradicts("How many rooms are vacant on the first floor?", "There are 1 vacant rooms there."));
}

#[test]
fn identifier_of_another_thing_is_found() {
    let run = |turn: &str| {
        Script::new("Where is my tablet?")
            .tools(&["get_order"])
            .calls("", &[("get_order", r#"{"order":"W-1"}"#)])
            .returns(r#"{"item":"Sneakers","tracking":"194496721133"}"#)
            .says(turn)
            .user("Are you certain?")
            .calls("", &[("get_order", r#"{"order":"W-2"}"#)])
            .returns(r#"{"item":"Tablet","tracking":"746342064230"}"#)
            .answers("I will look again.")
            .build()
    };
    assert!(has(&run("The tracking number for the tablet is 194496721133."), Defect::ContradictsResult));
    assert!(!has(&run("The tracking number for the sneakers is 194496721133."), Defect::ContradictsResult));
    assert!(!has(&run("The tracking number for the parcel is 194496721133."), Defect::ContradictsResult));
}

#[test]
fn conditions_that_the_call_applied_are_met_by_all_items() {
    let contradicts = |arguments: &str, answer: &str| {
        let rows = r#"[{"name":"Ridge","price_per_night":96},{"name":"Valley","price_per_night":71}]"#;
        let task = "What is the cheapest room from 12 May 2026 for 7 people?";
        let run = Script::new(task).tools(&["find_rooms"]).calls("", &[("find_rooms", arguments)]);
        has(&run.returns(rows).answers(answer).build(), Defect::ContradictsResult)
    };
    let applied = r#"{"from":"2026-05-12","people":7}"#;
    assert!(contradicts(applied, "The cheapest is Ridge at 96 a night."));
    assert!(!contradicts(applied, "The cheapest is Valley at 71 a night."));
    assert!(!contradicts(r#"{"from":"2026-05-12"}"#, "The cheapest is Ridge at 96 a night."));
}

#[test]
fn list_without_a_name_is_named_by_its_tool() {
    let rows = r#"[{"id":"a","due":"mon"},{"id":"b","due":"tue"}]"#;
    let contradicts = |tool: &str, answer: &str| {
        let run = Script::new("What is due?").tools(&[tool]).calls("", &[(tool, "{}")]);
        has(&run.returns(rows).answers(answer).build(), Defect::ContradictsResult)
    };
    assert!(contradicts("list_invoices", "You have four invoices that are due."));
    assert!(!contradicts("list_invoices", "You have two invoices that are due."));
    assert!(!contradicts("list_invoices", "You have four weeks to pay."));
    assert!(!contradicts("list_due", "You have four invoices that are due."));
}

#[test]
fn number_of_the_user_is_one_of_the_same_things() {
    let huts = r#"[{"name":"A","beds":3,"heated":true},{"name":"B","beds":3,"heated":false},
        {"name":"C","beds":4,"heated":true}]"#;
    let contradicts =
        |task: &str, turn: &str| has(&dialogue_turn(task, huts, turn), Defect::ContradictsResult);
    assert!(contradicts("Huts with at least 3 beds that are heated?", "All three huts are heated."));
    assert!(!contradicts("Which of the three huts are heated?", "All three huts are heated."));
    assert!(!contradicts("Huts with at least 3 beds that are heated?", "There are two heated huts."));
}

#[test]
fn statement_that_a_result_refutes_and_no_call_supports_is_one_finding() {
    use crate::measure::defects::Defect;
    let defects_of = |answer: &str| {
        let trace = Script::new("Please cancel booking QX-7731 and tell me the number of guests.")
            .tools(&["get_booking", "cancel_booking"])
            .calls("", &[("get_booking", r#"{"booking_id":"QX-7731"}"#)])
            .returns(r#"{"booking_id":"QX-7731","status":"confirmed","guests":2,"room":"Garden 4"}"#)
            .answers(answer)
            .build();
        let found =
            outcome_at(&trace, last_llm(&trace)).map(|measured| measured.findings).unwrap_or_default();
        let answer_findings =
            Review::get(&trace, &Memo::new()).answer_findings.get(&0).cloned().unwrap_or_default();
        (defects(found), defects(answer_findings))
    };
    fn defects(findings: Vec<crate::measure::Finding>) -> Vec<Defect> {
        let mut defects: Vec<Defect> = findings.into_iter().filter_map(|finding| finding.defect).collect();
        defects.sort_by_key(|defect| defect.name());
        defects.dedup();
        defects
    }
    // The state before the claimed action contradicts the claim as well. Only the missing call is reported, for the
    // model span and for the agent.
    let (refuted, not_done) = (Defect::ContradictsResult, Defect::FalseClaim);
    assert_eq!(defects_of("I have cancelled booking QX-7731."), (vec![not_done], vec![not_done]));
    let two = defects_of("I have cancelled booking QX-7731.\nIt is for Sunday, 21 March 2026.");
    assert_eq!(two, (vec![refuted, not_done], vec![refuted, not_done]));
    assert_eq!(defects_of("Booking QX-7731 is confirmed."), (vec![], vec![]));
}
