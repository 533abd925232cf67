//! Answers about amounts, times, counts and dates of results: each wrong statement next to right ones.

use super::values::check;

#[test]
fn amounts_above_the_bound_of_the_request_are_found() {
    let hotels = r#"[{"name":"Hotel Sol","price":129},{"name":"Hotel Luna","price":95},{"name":"Hotel Mar","price":210}]"#;
    check(
        "Find me a hotel in Graz under 100 EUR a night.",
        &[("search_hotels", r#"{"city":"Graz"}"#, hotels)],
        &["I recommend Hotel Sol at 129 EUR per night."],
        &[
            "I recommend Hotel Luna at 95 EUR per night.",
            "Hotel Luna costs 95 EUR, Hotel Sol 129 EUR.",
            "Hotel Sol is nicer, but at 129 EUR above your budget.",
            "Hotel Sol costs 129 USD.",
            "Hotel Sol has 129 rooms.",
        ],
    );
    let dear = r#"[{"name":"Hotel Sol","price":387},{"name":"Hotel Mar","price":630}]"#;
    let task = "Find me a hotel in Graz for three nights, up to 150 EUR a night.";
    check(task, &[("search_hotels", "{}", dear)], &[], &["I recommend Hotel Sol at 387 EUR."]);
}

#[test]
fn latest_and_earliest_follow_the_dates() {
    let invoices = r#"[{"invoice":"INV-2043","date":"2025-03-02","state":"paid"},{"invoice":"INV-2044","date":"2025-04-02","state":"open"}]"#;
    check(
        "What is my latest invoice?",
        &[("list_invoices", "{}", invoices)],
        &["Your latest invoice is INV-2043.", "The oldest invoice is INV-2044."],
        &[
            "Your latest invoice is INV-2044.",
            "Your latest paid invoice is INV-2043.",
            "The oldest invoice is INV-2043.",
            "One of the latest invoices is INV-2043.",
        ],
    );
    let visits = r#"[{"id":"V-101","booked":"2025-03-02","day":"2025-06-01"},{"id":"V-102","booked":"2025-03-05","day":"2025-05-01"}]"#;
    check("When is it?", &[("list_visits", "{}", visits)], &[], &["The earliest visit is V-102."]);
}

#[test]
fn times_of_day_that_nothing_gives_are_found() {
    let train = [("next_train", r#"{"to":"Linz"}"#, r#"{"train":"RJ 64","departure":"17:15","platform":3}"#)];
    check(
        "When does the next train to Linz leave?",
        &train,
        &["It leaves at 17:30 from platform 3.", "The RJ 64 departs at 6:15 pm."],
        &[
            "It leaves at 17:15 from platform 3.",
            "It leaves at 5:15 pm.",
            "Be there 15 minutes early, at 17:00.",
            "It leaves around 17:20.",
        ],
    );
    let timed = [("next_train", "{}", r#"{"departure":"17:15","minutes":90}"#)];
    check("When does it arrive?", &timed, &[], &["It arrives at 18:45."]);
    let hours = [("get_shop", "{}", r#"{"hours":"9-18","opened":"2019-04-01 10:00"}"#)];
    check("Until when is it open?", &hours, &[], &["The shop closes at 18:00."]);
    let zoned = [("get_call", "{}", r#"{"start":"2025-12-12T17:15:00Z"}"#)];
    check("When is the call?", &zoned, &[], &["The call starts at 18:15."]);
}

#[test]
fn number_keeps_its_unit() {
    let stock = [(
        "get_stock",
        "{}",
        r#"{"lots":[{"no":"L-1","qty":850,"unit":"mg"},{"no":"L-2","qty":40,"unit":"mg"}]}"#,
    )];
    check(
        "How much do we have?",
        &stock,
        &["Lot L-1 has 850 g."],
        &["Lot L-1 has 850 mg.", "Lot L-1 has 0.85 g.", "Lots L-1 and L-2 have 890 mg together."],
    );
    check("Do we have 850 g?", &stock, &[], &["You ask for 850 g; we have 0.89 g."]);
    let bill = [("get_bill", "{}", r#"{"amount_due":120.5,"currency":"USD","weight_kg":12.4}"#)];
    check(
        "What do I owe?",
        &bill,
        &["You owe 120.50 €.", "You owe €120.50.", "The parcel has 12.4 lb."],
        &["You owe $120.50.", "You owe 120.50.", "The parcel has 12.4 kg.", "You owe 120.50 US dollars."],
    );
    let timing = [("get_run", "{}", r#"{"elapsed_ms":412,"steps":412}"#)];
    check("How long?", &timing, &[], &["It took 412 seconds in another run.", "It took 412 ms."]);
}

#[test]
fn condition_that_the_call_was_given_holds_of_all_items() {
    let boats =
        r#"{"boats":[{"id":"B-1","price":310.0},{"id":"B-2","price":275.5},{"id":"B-3","price":402.0}]}"#;
    let search = |arguments| [("search_boats", arguments, boats)];
    let task = "What is the cheapest electric boat?";
    check(
        task,
        &search(r#"{"drive":"electric"}"#),
        &["The cheapest one is B-1 at 310."],
        &["The cheapest one is B-2."],
    );
    check(task, &search("{}"), &[], &["The cheapest electric boat is B-1 at 310."]);
}

#[test]
fn counts_of_a_state_are_at_most_those_without_its_opposite() {
    let jobs = r#"{"jobs":[{"no":"J-31","status":"open"},{"no":"J-32","status":"closed"},{"no":"J-33","status":"open"},{"no":"J-34","status":"pending"},{"no":"J-35","status":"closed"},{"no":"J-36","status":"open"}]}"#;
    check(
        "Which jobs are left at the garage?",
        &[("list_jobs", "{}", jobs)],
        &["There are **five** jobs open at the garage, J-31 first.", "You have six open jobs."],
        &[
            "There are three jobs open: J-31, J-33 and J-36.",
            "Four jobs are still open, if you include J-34, which is pending.",
            "There are six jobs in all; three of them are open.",
            "The six lines in the open jobs are billed later.",
        ],
    );
    let page = r#"{"total":9,"jobs":[{"no":"J-31","status":"open"},{"no":"J-32","status":"open"}]}"#;
    check(
        "How many jobs?",
        &[("list_jobs", "{}", page)],
        &[],
        &["There are nine open jobs; these are the first two."],
    );
    let second = r#"{"jobs":[{"no":"J-33","status":"open"},{"no":"J-34","status":"closed"}]}"#;
    let first = r#"{"jobs":[{"no":"J-31","status":"open"},{"no":"J-32","status":"open"}]}"#;
    let pages = [("list_jobs", r#"{"page":1}"#, first), ("list_jobs", r#"{"page":2}"#, second)];
    check("Which jobs are left?", &pages, &["There are four open jobs."], &["There are three open jobs."]);
}

#[test]
fn dates_of_another_row_are_found_in_other_languages() {
    let shows =
        r#"[{"titel":"Haus am Hang","datum":"2026-06-14"},{"titel":"Der Glaskönig","datum":"2026-09-06"}]"#;
    check(
        "Wann laufen die Stücke?",
        &[("spielplan", "{}", shows)],
        &[],
        &[
            "- Haus am Hang läuft am 14. Juni\n- Der Glaskönig läuft am 6. September",
            "Haus am Hang und Der Glaskönig laufen am 14. Juni und am 6. September.",
        ],
    );
    let films = r#"[{"titre":"La Dune","date":"2026-03-12"},{"titre":"Hiver bleu","date":"2026-04-02"}]"#;
    check(
        "Quand passent les films ?",
        &[("films", "{}", films)],
        &["- La Dune est projetée le 2 avril\n- Hiver bleu est projeté le 12 mars"],
        &[
            "- La Dune est projetée le 12 mars\n- Hiver bleu est projeté le 2 avril",
            "La Dune passe le 12 mars, trois semaines avant Hiver bleu (2 avril).",
        ],
    );
}

#[test]
fn amounts_under_keys_with_units_and_asked_fields_are_no_counts() {
    let volumes = r#"{"intake_ml": [{"oral": 400}, {"drip": 350}], "output_ml": [{"urine": 520}]}"#;
    check(
        "Volumes of bed 4?",
        &[("volumes", "{}", volumes)],
        &[],
        &["In: 750 ml, out: 520 ml.", "750 ml went in."],
    );
    let variants = r#"{"test": "blue", "arms": [{"name": "a", "sales": 310}, {"name": "b", "sales": 352}]}"#;
    let asked = |task: &str, wrong: &[&str], right: &[&str]| {
        check(task, &[("get_test", "{}", variants)], wrong, right);
    };
    asked("How many sales did both have?", &[], &["Together 662 sales."]);
    asked("How many more sales would b need?", &[], &["It would need 17 more sales to win."]);
    asked("How many arms does it have?", &["It has 5 arms."], &["It has 2 arms."]);
}

#[test]
fn parts_of_times_are_no_values_and_shares_are_no_changes() {
    let shifts = r#"[{"day": "Mon", "in": "08:00", "out": "16:30", "pause": 45}, {"day": "Tue", "in": "09:00", "out": "14:15", "pause": 30}]"#;
    check(
        "When was the shift on Monday and on Tuesday?",
        &[("get_shifts", "{}", shifts)],
        &["Mon had a pause of 30 minutes.", "Tue: 09:00 to 14:15, pause 45 min"],
        &[
            "Mon: 08:00 to 16:30, 7:45 of work",
            "| Mon | 08:00–16:30 | – | 8:30 |\n| Tue | 09:00–14:15 | – | 4:45 |",
        ],
    );
    let night = r#"{"from": "22:00", "degrees": [3.1, 0.8, -0.4, -1.2, -2.6, 0.3]}"#;
    check(
        "How cold was it?",
        &[("get_night", "{}", night)],
        &[],
        &["It was coldest at 02:00, with -2.6 degrees."],
    );
    let prices = r#"[{"part": "rim", "cost": 640}, {"part": "tyre", "cost": 310}]"#;
    check(
        "What would it cost with other rims?",
        &[("get_prices", "{}", prices)],
        &[
            "Other rims lower it from 640 to 160, which is 60 % less.",
            "The rims fall from 640 to 160, which is -60 %.",
        ],
        &[
            "Other rims lower it from 640 to 160, i.e. by 480 (51 % of the bill).",
            "Other rims lower it from 640 to 160, i.e. by 480 (75 %).",
        ],
    );
}
