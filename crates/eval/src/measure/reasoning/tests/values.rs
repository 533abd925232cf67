//! Answers about rows, fields and all things of results: each wrong statement next to right ones.

use super::*;
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::reasoning::contradicted;

/// The rationales of the contradictions of an answer. Each call is a tool, its arguments and its result.
pub(super) fn contradictions(task: &str, calls: &[(&str, &str, &str)], answer: &str) -> Vec<String> {
    let script = Script::new(task);
    let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
        script.calls("", &[(*tool, *arguments)]).returns(result)
    });
    let trace = script.answers(answer).build();
    let memo = Memo::new();
    let found = contradicted::find(&trace, &memo, &CallAttempts::get(&trace, &memo));
    found.into_iter().flat_map(|compared| compared.findings).map(|finding| finding.rationale).collect()
}

#[track_caller]
pub(super) fn check(task: &str, calls: &[(&str, &str, &str)], wrong: &[&str], right: &[&str]) {
    for answer in wrong {
        assert!(!contradictions(task, calls, answer).is_empty(), "{answer}");
    }
    for answer in right {
        assert_eq!(contradictions(task, calls, answer), Vec::<String>::new(), "{answer}");
    }
}

#[test]
fn row_named_by_a_common_word_of_the_request_is_compared() {
    let items = r#"{"items":[{"name":"lamp","price":40.5,"days":3},{"name":"chair","price":90.5,"days":9}]}"#;
    let calls = [("get_items", "{}", items)];
    check(
        "What does the lamp cost?",
        &calls,
        &["The lamp costs 90.50 euros.", "The price of the lamp is 90.50."],
        &[
            "The lamp costs 40.50 euros.",
            "Two lamps cost 81.00, and the lamp alone 40.50.",
            "The lamp costs 40.50, 50.00 less than the chair.",
        ],
    );
    let plans = r#"{"plans":[{"plan":"monthly","price":35.0},{"plan":"annual","price":378.0}]}"#;
    let right = "The annual plan costs 378, which is 31.50 a month, and the monthly plan 35.";
    check("Which plan is cheaper, monthly or annual?", &[("get_plans", "{}", plans)], &[], &[right]);
}

#[test]
fn last_digits_are_read_in_every_language() {
    let cards = [("list_cards", "{}", r#"{"cards":[{"id":"crd_a81","number":"5243 88** **** 4417"}]}"#)];
    for answer in [
        "Your card ending in NNNN is blocked now.",
        "The last four digits of the card are NNNN.",
        "Ihre Karte endet auf NNNN und ist jetzt gesperrt.",
        "Votre carte se terminant par NNNN est maintenant bloquée.",
        "Su tarjeta terminada en NNNN ya está bloqueada.",
        "O seu cartão terminado em NNNN já está bloqueado.",
        "La sua carta che termina con NNNN è ora bloccata.",
        "您尾号为NNNN的卡现在已经冻结了。",
        "末尾がNNNNのカードは現在停止されています。",
    ] {
        check("?", &cards, &[&answer.replace("NNNN", "4471")], &[&answer.replace("NNNN", "4417")]);
    }
}

#[test]
fn values_of_another_row_are_found() {
    let parcels = r#"[{"id":"W-1001","eta":"2025-12-05","carrier":"DHL"},{"id":"W-1002","eta":"2025-12-09","carrier":"GLS"}]"#;
    check(
        "When do my parcels arrive?",
        &[("list_parcels", "{}", parcels)],
        &[
            "W-1001 arrives on 9 December.",
            "W-1001 arrives on December 9, W-1002 on December 5.",
            "W-1001 is the next one, on 9 December.",
            "| parcel | date |\n|---|---|\n| W-1001 | 9 December |",
        ],
        &[
            "W-1001 arrives on 5 December, W-1002 on 9 December.",
            "W-1001 and W-1002 arrive on 5 and 9 December.",
            "W-1001 arrives four days before 9 December.",
            "W-1001 arrives from 5 to 9 December.",
            "Your parcels arrive by 9 December.",
            "W-1001 does not arrive on 9 December.",
            "W-1001 arrives earlier than W-1002, which comes on 9 December.",
        ],
    );
    let staff = r#"{"staff":[{"name":"Ana Ruiz","team":"Payments","desk":412},{"name":"Ben Ode","team":"Search","desk":377},{"name":"Cleo Marsh","team":"Payments","desk":218}]}"#;
    check(
        "Where do Ana and Ben work?",
        &[("list_staff", "{}", staff)],
        &["Ana Ruiz works in Search at desk 412.", "Ben Ode sits at desk 218."],
        &[
            "Ana Ruiz works in Payments at desk 412, and Ben Ode in Search.",
            "Ana Ruiz and Ben Ode work in Payments and Search.",
            "Search results show Ana Ruiz in Payments.",
            "Cleo Marsh is in Payments, like Ana Ruiz.",
            "Ana Ruiz (Payments, desk 412) and Ben Ode (Search, desk 377).",
        ],
    );
    let hotels = r#"[{"hotel":"Hotel Sol","price":120,"rooms":{"free":3}},{"hotel":"Hotel Luna","price":95,"rooms":{"free":14}}]"#;
    check(
        "What do the two hotels cost?",
        &[("search_hotels", r#"{"city":"Graz"}"#, hotels)],
        &["Hotel Sol costs 95 EUR a night."],
        &[
            "Hotel Sol costs 120 EUR and Hotel Luna 95 EUR a night.",
            "Hotel Sol is 25 EUR more expensive.",
            "Hotel Sol costs 360 EUR for three nights.",
            "Hotel Sol has 14 reviews.",
        ],
    );
}

#[test]
fn common_words_name_no_row() {
    let areas =
        r#"[{"area":"Garden","sensor":"Netatmo","lux":312},{"area":"Hall","sensor":"Philips","lux":127}]"#;
    check(
        "Which sensors are there?",
        &[("list_areas", "{}", areas)],
        &["Garden has a Philips sensor.", "Hall is at 312 lux."],
        &["The lamp of the garden shed is a Philips.", "Garden has a Netatmo sensor and Hall a Philips."],
    );
    let lessons = r#"{"lessons":[{"nr":1,"subject":"Latin","teacher":"Ms Adler","room":"204"},{"nr":2,"subject":"Art","teacher":"Mr Osei","room":"011"}]}"#;
    check(
        "Who teaches the first lesson?",
        &[("timetable", r#"{"day":"Monday"}"#, lessons)],
        &["The first lesson is Latin with Mr Osei in room 204."],
        &["The first lesson is Latin with Ms Adler in room 204, the second is Art with Mr Osei."],
    );
    let loans = r#"{"loans":[{"title":"The Salt Road","due":"2025-10-02"},{"title":"Glass Harbour","due":"2025-09-25"}]}"#;
    check(
        "Which book is due first?",
        &[("loans", "{}", loans)],
        &["The Salt Road is due first, on 25 September 2025."],
        &["Glass Harbour is due first, on 25 September 2025.", "The Salt Road is due later, on 2 October."],
    );
}

#[test]
fn values_of_the_result_of_another_call_are_found() {
    let calls = [
        ("get_order", r#"{"id":"W-4411"}"#, r#"{"id":"W-4411","status":"processed","placed":"2025-03-02"}"#),
        ("get_order", r#"{"id":"W-4412"}"#, r#"{"id":"W-4412","status":"delivered","placed":"2025-03-09"}"#),
    ];
    check(
        "What about my two orders?",
        &calls,
        &["Order W-4411 was placed on 9 March.", "Your order W-4411 has been delivered."],
        &[
            "Order W-4411 was placed on 2 March and is processed; W-4412 has been delivered.",
            "Order W-4412 was placed on 9 March.",
        ],
    );
    let updated = [
        ("get_order", r#"{"id":"W-4411"}"#, r#"{"id":"W-4411","gate":"Blue"}"#),
        ("get_order", r#"{"id":"W-4412"}"#, r#"{"id":"W-4412","gate":"Green"}"#),
        ("set_gate", r#"{"id":"W-4411","gate":"Green"}"#, "ok"),
    ];
    check("Same gate for both, please.", &updated, &[], &["W-4411 is at gate Green now."]);
}

#[test]
fn numbers_beside_the_name_of_a_field_are_found() {
    let leave = [("get_leave", r#"{"user":"me"}"#, r#"{"remaining_days":7,"year":2025}"#)];
    check(
        "How much leave do I have?",
        &leave,
        &["You have 9 days remaining.", "Your remaining days: 9"],
        &[
            "You have 7 days remaining.",
            "You have seven days remaining, that is 56 hours at 8 a day.",
            "You had 9 days before; you have 7 days remaining.",
            "There are 9 public holidays.",
        ],
    );
    let order = [(
        "get_order",
        r#"{"id":"W-1"}"#,
        r#"{"id":"W-1","subtotal":84.5,"tax":5.92,"shipping":4.9,"total":95.32,"items":[{"sku":"A-1"},{"sku":"A-2"}]}"#,
    )];
    check(
        "What does my order come to?",
        &order,
        &["Your total is 89.40 EUR.", "The total is $94.20."],
        &[
            "Your total is 95.32 EUR.",
            "Your total is about 95 EUR.",
            "Without tax, your total is 89.40 EUR.",
            "Your total before tax is 89.40 EUR, and 95.32 with it.",
            "In total there are 2 items.",
        ],
    );
    check("What is the total without tax?", &order, &[], &["The total is 89.40 EUR."]);
    let bill = ("get_bill", "{}", r#"{"amount":100.0,"currency":"USD"}"#);
    let rate = ("get_rate", "{}", r#"{"rate":0.924}"#);
    check("What is the amount in euros?", &[bill, rate], &[], &["The amount is 92.40 EUR."]);
    let search = [("search", "{}", r#"{"total":3,"items":[{"price":20.5},{"price":41.0},{"price":21.0}]}"#)];
    check("What do they cost?", &search, &[], &["The total is 82.50 EUR."]);
    let ride = [("get_ride", "{}", r#"{"duration":90,"distance":12400}"#)];
    check("How long is it?", &ride, &[], &["The duration is 1.5 hours.", "The distance is 12.4 km."]);
}

#[test]
fn older_result_of_an_equal_call_is_found() {
    let calls = [
        ("get_balance", r#"{"account":"A-10"}"#, r#"{"balance":500}"#),
        ("transfer_money", r#"{"from":"A-10","amount":200}"#, r#"{"ok":true}"#),
        ("get_balance", r#"{"account":"A-10"}"#, r#"{"balance":300}"#),
    ];
    check(
        "Transfer 200 EUR and tell me my balance.",
        &calls,
        &["Your balance is 500 EUR."],
        &["Your balance is 300 EUR.", "Your balance was 500 EUR.", "Your balance went from 500 to 300 EUR."],
    );
    check("Transfer 200 EUR.", &calls[..2], &[], &["Your balance is 300 EUR."]);
}

#[test]
fn statement_about_all_things_is_refuted_by_one_of_them() {
    let flights = r#"[{"flight":"A1-20","refundable":true,"carrier":"Sky"},{"flight":"B2-30","refundable":false,"carrier":"Sky"}]"#;
    check(
        "Are the flights refundable?",
        &[("find_flights", "{}", flights)],
        &[
            "All flights are refundable.",
            "Yes, both are refundable.",
            "None of the flights is refundable.",
            "A1-20 and B2-30 leave in the morning. Both are refundable.",
        ],
        &[
            "Not all flights are refundable.",
            "A1-20 is refundable, B2-30 is not.",
            "All flights except B2-30 are refundable.",
            "All morning flights are refundable.",
            "I looked at A1-20. All its fares are refundable.",
            "B2-30 is not refundable; all others are refundable.",
        ],
    );
    let hotels = r#"[{"name":"Hotel Sol","breakfast":true},{"name":"Hotel Luna","breakfast":true},{"name":"Hotel Mar","breakfast":false}]"#;
    check(
        "Find two hotels with breakfast.",
        &[("search_hotels", "{}", hotels)],
        &[],
        &[
            "I suggest Hotel Sol and Hotel Luna. Both have breakfast.",
            "I found two hotels. All hotels have breakfast.",
            "All hotels below have breakfast.",
        ],
    );
    let sensors = r#"{"devices":[{"device":"hall","online":true},{"device":"attic","online":true}]}"#;
    check(
        "Are all devices online?",
        &[("list_devices", "{}", sensors)],
        &["No device is online."],
        &["Yes, all devices are online.", "Both are online."],
    );
    let one = sensors.replacen("true", "false", 1);
    check(
        "Are all devices online?",
        &[("list_devices", "{}", &one)],
        &["Yes."],
        &["No, the hall is offline."],
    );
}

#[test]
fn state_of_all_things_is_refuted_by_another_state_of_one() {
    let pods = "NAME   STATUS   RESTARTS\ncart-x2x1   Running   0\ncart-p9k2   CrashLoopBackOff   17\nsearch-77c5   Running   2\n";
    check(
        "Is anything wrong in namespace shop?",
        &[("get_pods", r#"{"namespace":"shop"}"#, pods)],
        &["No, all three pods in the namespace shop are running.", "All pods are running."],
        &[
            "Two of the three pods are running, cart-p9k2 is in CrashLoopBackOff.",
            "All pods except cart-p9k2 are running.",
            "All other pods are running.",
            "All pods of the search service are running.",
            "Not all pods are running.",
        ],
    );
    let jobs = r#"{"branch":"fix/login","state":"failure","passed":6,"total":7}"#;
    check(
        "Is the build of fix/login green?",
        &[("ci_status", r#"{"branch":"fix/login"}"#, jobs)],
        &["The build of fix/login passed."],
        &["The build of fix/login has failed.", "The build of fix/login is not green."],
    );
}

#[test]
fn total_within_a_sentence_is_the_sum_of_its_parts() {
    let costs = [("get_costs", "{}", r#"{"flights":412.5,"hotel":380.0,"taxi":46.2}"#)];
    check(
        "What do flights, hotel and taxi cost together?",
        &costs,
        &[
            "Flights are 412.50, the hotel 380.00 and the taxi 46.20, together 828.70.",
            "Flights (412.50 EUR) and the hotel (380.00 EUR) add up to 829.50 EUR.",
        ],
        &[
            "Flights are 412.50, the hotel 380.00 and the taxi 46.20, together 838.70.",
            "Flights (412.50 EUR) and the hotel (380.00 EUR) add up to 792.50 EUR.",
            "Flights are 412.50, the hotel 380.00 and the taxi 46.20; without the taxi that is 792.50 in total.",
            "The hotel is 380.00 for 2 nights.",
            "Flights are 412.50 and the hotel 380.00 for each of you, together 1,585.00.",
            "Flights (412.50) and hotel (380.00) are 792.50 and 12.44 of discount, in total 780.06.",
            "The bags weigh 2.5 kg and 1.5 kg, together 8.8 lb.",
        ],
    );
}

#[test]
fn bound_of_a_series_is_refuted_by_one_value() {
    let readings = r#"{"readings":[{"t":"02:00","c":-74.1},{"t":"02:40","c":-69.2},{"t":"03:10","c":-73.0},{"t":"04:00","c":-73.9}]}"#;
    check(
        "Was freezer F3 warmer than -70 °C last night?",
        &[("get_readings", r#"{"freezer":"F3"}"#, readings)],
        &["No, F3 stayed below -70 °C all night.", "The freezer never exceeded -70 °C."],
        &[
            "F3 stayed below -65 °C all night.",
            "F3 stayed below -70 °C except at 02:40.",
            "F3 never fell below -75 °C.",
            "Yes, F3 went above -70 °C once.",
        ],
    );
    let load = r#"[{"host":"a","cpu":71,"memory":40},{"host":"b","cpu":66,"memory":93},{"host":"c","cpu":52,"memory":61}]"#;
    check(
        "How were the hosts last week?",
        &[("get_load", "{}", load)],
        &["Memory remained under 90 % on all hosts.", "The CPU stayed above 55 %."],
        &["The CPU remained under 80 % on all hosts.", "Load stayed below 90 %."],
    );
}

#[test]
fn pending_things_are_neither_approved_nor_confirmed() {
    let result = r#"{"reference":"K-2291","status":"pending"}"#;
    check(
        "Book the court on Monday.",
        &[("book_court", r#"{"day":"Monday"}"#, result)],
        &["Your booking K-2291 is confirmed."],
        &["Your booking K-2291 is pending.", "Your booking K-2291 has not been confirmed yet."],
    );
    check(
        "Was my leave approved?",
        &[("get_leave_request", "{}", result)],
        &["Your leave is approved."],
        &[],
    );
    check("Order the lamp.", &[("order_item", "{}", result)], &[], &["Your order K-2291 is confirmed."]);
}

#[test]
fn answers_are_compared_with_results_of_retrievers() {
    let run = |documents: &str, task: &str, answer: &str| {
        let trace = Script::new(task).retrieves_for_prompt(documents).answers(answer).build();
        let (settings, memo) = (Settings::default(), Memo::new());
        let at = trace.agents[0].llms[0];
        let measured = measure(&Context {
            row: row("reasoning_integrity"),
            trace: &trace,
            at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        });
        measured.unwrap().outcome.map(|measured| measured.findings.len()).unwrap_or_default()
    };
    let refunds = r#"[{"text":"Refunds are possible within 30 days. A fee of 2 EUR is kept."}]"#;
    assert_eq!(run(refunds, "How long is the refund window?", "The refund window is 45 days."), 1);
    assert_eq!(run(refunds, "How long is the refund window?", "You have 30 days, and 2 EUR are kept."), 0);
    let pumps = "The P-200 pump moves 1,250 litres an hour. It weighs 18.6 kg.";
    assert_eq!(run(pumps, "How much does the P-200 move?", "It moves 1,520 litres an hour."), 1);
    assert_eq!(
        run(pumps, "How much does the P-200 move?", "It moves 1250 litres an hour, or 30,000 a day."),
        0
    );
    assert_eq!(run(pumps, "Write a slogan for the P-200.", "10,000 reasons to pump!"), 0);
    assert_eq!(run(pumps, "How much does the P-200 move?", "I read the documents: they do not say."), 0);
}
