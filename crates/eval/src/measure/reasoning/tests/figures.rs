//! Answers with calculated figures: each wrong one together with right ones, in several languages and domains.

use super::values::check;

#[test]
fn changes_in_percent_are_of_the_amount_before() {
    let water = [("meter", "{}", r#"[{"month":"2026-04","litres":6400},{"month":"2026-05","litres":8000}]"#)];
    check(
        "How did our water use change in May?",
        &water,
        &[
            "It rose from 6,400 litres in April to 8,000 in May, an increase of 1,600 or 20 %.",
            "It grew from 6,400 litres in April to 8,000 in May, up 20 %.",
            "April had 6,400 litres and May 8,000. That is an increase of 20 %.",
            "Der Verbrauch ist von 6.400 auf 8.000 Liter gestiegen, ein Zuwachs von 1.600 Litern (+20 %).",
            "Le consommation est passée de 6 400 à 8 000 litres, en hausse de 20 %.",
            "El consumo fue de 8.000 litros frente a 6.400 en abril, un aumento del 20 %.",
            "5月用水量为8,000升,4月为6,400升,增加了1,600升,增长约20%。",
            "5月は8,000リットル、4月は6,400リットルで、1,600リットル、20%の増加です。",
        ],
        &[
            "It rose from 6,400 litres in April to 8,000 in May, an increase of 1,600 or 25 %.",
            "It rose from 6,400 to 8,000 litres, by 1,600, which is 20 % of the use in May.",
            "In May it was 8,000 litres; 6,400 litres in April were 20 % less.",
            "Der Verbrauch ist von 6.400 auf 8.000 Liter gestiegen, ein Zuwachs von 25 %.",
            "5月用水量为8,000升,4月为6,400升,增加了1,600升,增长约25%。",
            "It rose from 6,400 to 8,000 litres, and with a margin of 20 % you would need 10,000.",
            "It rose from 6,400 to 8,000 litres, and the garden takes 20 % more in summer.",
        ],
    );
    check(
        "Is the rent lower now?",
        &[("get_rents", "{}", r#"{"old_rent": 1250.0, "new_rent": 1000.0}"#)],
        &["The rent fell from 1,250.00 to 1,000.00, a reduction of 250.00 or 25 %."],
        &[
            "The rent fell from 1,250.00 to 1,000.00, a reduction of 250.00 or 20 %.",
            "The rent fell to 1,000.00; the old one of 1,250.00 was 25 % higher.",
        ],
    );
    let stated = [("get_growth", "{}", r#"{"before": 400, "after": 500, "growth_percent": 20}"#)];
    check("How much did it grow?", &stated, &[], &["It grew from 400 to 500, an increase of 20 %."]);
}

#[test]
fn totals_above_and_below_their_parts_add_up() {
    let costs = r#"[{"item":"Seeds","eur":61.2},{"item":"Soil","eur":148.5},{"item":"Tools","eur":93.75}]"#;
    check(
        "What did the garden cost?",
        &[("list_costs", "{}", costs)],
        &[
            "The garden came to a total of **€313.45**:\n\n- Seeds: €61.20\n- Soil: €148.50\n- Tools: €93.75",
            "Der Garten hat insgesamt 313,45 € gekostet:\n- Samen: 61,20 €\n- Erde: 148,50 €\n- Geräte: 93,75 €",
            "- Seeds: 61.20\n- Soil: 148.50\n- Tools: 93.75\n- Garden total: 313.45",
            "- Samen: 61,20 €\n- Erde: 148,50 €\n- Geräte: 93,75 €\nGesamtbetrag: 313,45 €",
            "**Garden, 2nd bill**\n\n| Item | EUR | Share |\n|---|---:|---:|\n| Seeds | 61.20 | 20 % |\n| Soil | 148.50 | 49 % |\n| Tools | 93.75 | 31 % |\n| **Total** | **313.45** | **100 %** |",
            "花园费用合计 313.45 元：\n- 种子：61.20 元\n- 土：148.50 元\n- 工具：93.75 元",
            "Seeds were 61.20, soil 148.50 and tools 93.75, for a total of 209.70 EUR.",
            "Les graines coûtent 61,20 €, la terre 148,50 € et les outils 93,75 €, au total 313,45 €.",
        ],
        &[
            "**Garden, 2nd bill**\n\n| Item | EUR | Share |\n|---|---:|---:|\n| Seeds | 61.20 | 20 % |\n| Soil | 148.50 | 49 % |\n| Tools | 93.75 | 31 % |\n| **Total** | **303.45** | **100 %** |",
            "**Garden, 2nd bill**\n\n| Item | EUR | Share |\n|---|---:|---:|\n| Seeds | 61.20 | 20.2 % |\n| Soil | 148.50 | 49.0 % |\n| Tools | 93.75 | 30.8 % |\n| **Total** | **303.45** | **up by 3 %** |",
            "The garden came to a total of **€303.45**:\n\n- Seeds: €61.20\n- Soil: €148.50\n- Tools: €93.75",
            "Der Garten hat insgesamt 303,45 € gekostet:\n- Samen: 61,20 €\n- Erde: 148,50 €\n- Geräte: 93,75 €",
            "1. Seeds: 61.20 € (20.2 %)\n2. Soil: 148.50 € (48.9 %)\n3. Tools: 93.75 € (30.9 %)\n\nTogether 303.45 €, all of it.",
            "1. Samen: 61,20 € (20,2 %)\n2. Erde: 148,50 € (48,9 %)\n3. Geräte: 93,75 € (30,9 %)\n\nZusammen sind das 303,45 €.",
            "Your total is 303.45 EUR. Some items of it:\n- Seeds: 61.20\n- Soil: 148.50",
            "- Seeds: 61.20\n- Soil: 148.50\n- Tools: 93.75\n- Garden total: 303.45",
            "The total for two gardens is 606.90 EUR:\n- Seeds: 61.20\n- Soil: 148.50\n- Tools: 93.75",
            "Seeds were 61.20, soil 148.50 and tools 93.75, for a total of 303.45 EUR.",
            "Les graines coûtent 61,20 €, la terre 148,50 € et les outils 93,75 €, au total 303,45 €.",
            "The total of the new price, with 60 more, is 363.45 EUR:\n- Garden: 303.45 EUR\n- Fence: 60.00 EUR",
        ],
    );
    // An action repeats what it was given; the user and other results do not.
    let submitted = |total: &str| {
        let arguments = format!(r#"{{"total": {total}}}"#);
        ("declare", arguments.clone(), format!(r#"{{"report":"R-7","total": {total}}}"#))
    };
    let (_, arguments, result) = submitted("209.70");
    let without =
        "Seeds are 61.20, soil 148.50 and tools 93.75; without the tools that is a total of 209.70 EUR.";
    check("What did it cost without the tools?", &[("list_costs", "{}", costs)], &[], &[without]);
    let declared = [("list_costs", "{}", costs), ("declare", &*arguments, &*result)];
    let wrong = "Declared as GA-2026-0114. It is for three things – seeds 61.20, soil 148.50 and tools 93.75 – for a total of **€209.70**.";
    check("Declare the costs.", &declared, &[wrong], &[]);
    check("Declare the costs, 209.70 in total.", &declared, &[], &[wrong]);
    let priced = [("list_costs", "{}", costs), ("get_invoice", "{}", r#"{"total": 209.7}"#)];
    check("What is the total?", &priced, &[], &[wrong]);
    let stay = [("get_offer", "{}", r#"{"price_per_night": 84.0, "nights": 3, "cleaning": 30.0}"#)];
    check(
        "What does the stay cost?",
        &stay,
        &[],
        &[
            "- Price per night: 84.00 EUR\n- Nights: 3\n- Cleaning: 30.00 EUR\n- Stay in total: 282.00 EUR",
            "- Rooms: 2\n- Nights: 3\n- Guests in total: 4",
            "- Sheets, 12.00 EUR × 2\n- Towels, 8.00 EUR × 4\n- Stay in total: 56.00 EUR",
            "In total you spent 120.50 EUR, mainly for:\n- Food: 60.00 EUR\n- Trains: 40.00 EUR",
            "Das Zimmer kostet 84,00 €, das Frühstück 12,00 € und die Reinigung 30,00 €, insgesamt mit Steuer 134,82 €.",
        ],
    );
}

#[test]
fn totals_of_more_rows_than_a_table_shows_are_right() {
    let rows = r#"[["Kites", 5200], ["Balls", 3100], ["Ropes", 1900], ["Nets", 800]]"#;
    check(
        "Which two groups sell best?",
        &[("run_sql", "{}", rows)],
        &["| Group | Sales 2025 |\n|---|---|\n| Kites | 5,200 |\n| Balls | 3,100 |\n\nTotal: 9,300"],
        &[
            "| Group | Sales 2025 |\n|---|---|\n| Kites | 5,200 |\n| Balls | 3,100 |\n\nTotal of all groups: 11,000",
            "| Group | Sales 2025 |\n|---|---|\n| Kites | 5,200 |\n| Balls | 3,100 |\n\nTotal: 8,300",
        ],
    );
}

#[test]
fn a_count_may_be_the_difference_of_two_columns() {
    let stock = "site,held,reserved\nNorth,40,12\nSouth,25,5\nWest,30,10\n";
    check(
        "How many chairs can we still rent out?",
        &[("stock", "{}", stock)],
        &["412 chairs."],
        &["68 (95 held less 27 reserved)."],
    );
}

#[test]
fn units_are_converted_by_their_power_of_ten() {
    let tank = [("tank", "{}", r#"{"tank":"T2","fuellstand":3.2,"einheit":"m3","kapazitaet":8.0}"#)];
    check(
        "Wie viel Wasser ist im Tank T2?",
        &tank,
        &["Im Tank T2 sind noch 320 Liter.", "Im Tank sind 32.000 Liter."],
        &["Im Tank T2 sind noch 3.200 Liter.", "Im Tank sind 3,2 m³.", "Im Tank sind 3.200.000 ml."],
    );
    check(
        "How much does the parcel weigh?",
        &[("parcel", "{}", r#"{"weight_kg": 2.45}"#)],
        &["It weighs 245 g."],
        &["It weighs 2,450 g.", "It weighs 2.45 kg."],
    );
    check(
        "How much is 10 % of the parcel?",
        &[("parcel", "{}", r#"{"weight_kg": 2.45}"#)],
        &[],
        &["A tenth of it is 245 g."],
    );
}

#[test]
fn columns_of_a_table_are_calculated_alike() {
    let packs = [(
        "variants",
        "{}",
        r#"[{"pods":18,"price":8.1},{"pods":40,"price":18.8},{"pods":60,"price":27.6}]"#,
    )];
    let table = |first: &str| {
        format!(
            "| Pack | Price | per pod |\n|---|---|---|\n| 18 | €8.10 | {first} |\n| 40 | €18.80 | €0.47 |\n| 60 | €27.60 | €0.46 |"
        )
    };
    check("Which pack is cheaper?", &packs, &[&table("€0.48")], &[&table("€0.45")]);
    let hours =
        [("shifts", "{}", r#"[{"hours":12,"rate":17.5},{"hours":9,"rate":21.0},{"hours":14,"rate":16.0}]"#)];
    let pay = |last: &str, note: &str| {
        format!(
            "| Stunden | Satz | Lohn | Abzug |\n|---|---|---|---|\n| 12 | 17,50 | 210,00 | |\n| 9 | 21,00 | 189,00 | |\n| 14 | 16,00 | {last} | {note} |\n| Summe | | 623,00 | |"
        )
    };
    check(
        "Wie hoch ist der Lohn?",
        &hours,
        &[&pay("244,00", "")],
        &[&pay("224,00", ""), &pay("204,00", "20,00")],
    );
}

#[test]
fn orders_that_wait_for_payment_are_not_shipped() {
    for status in ["awaiting_payment", "backorder", "in preparation", "pending_payment"] {
        let order = format!(r#"{{"order":"W-88","item":"Kayak","status":"{status}"}}"#);
        check(
            "Has my kayak shipped? W-88",
            &[("get_order", r#"{"order":"W-88"}"#, &order)],
            &["Your kayak has been shipped and is on its way.", "Yes, it is on its way to you."],
            &["It has not shipped yet.", "Your kayak will be shipped once it is paid."],
        );
    }
}

#[test]
fn bounds_that_a_question_asks_about_hold_for_all_values() {
    let log = |values: [f64; 4]| {
        let rows: Vec<String> =
            values.iter().enumerate().map(|(at, c)| format!(r#"{{"t":"0{at}:00","c":{c}}}"#)).collect();
        format!("[{}]", rows.join(","))
    };
    let (broken, unbroken) = (log([-74.1, -69.2, -66.8, -73.9]), log([-74.1, -72.2, -71.8, -73.9]));
    let task = "Was the freezer ever warmer than -70 °C last night?";
    let denials = ["No, it stayed below -70 °C all night.", "No."];
    check(task, &[("readings", "{}", &broken)], &denials, &["Yes, it was at -66.8 °C at 02:00."]);
    check(task, &[("readings", "{}", &unbroken)], &[], &denials);
    let noise = log([48.0, 52.5, 61.0, 47.0]);
    check(
        "Did the noise ever exceed 60 dB?",
        &[("levels", "{}", &noise)],
        &["No, it did not."],
        &["Yes, once."],
    );
}

#[test]
fn refunds_have_the_amount_of_their_result() {
    let order = (
        "get_order",
        r#"{"id":"W-7"}"#,
        r#"{"id":"W-7","lines":[{"name":"Drum","price_cents":8900}],"paid_cents":7900}"#,
    );
    let refund =
        ("get_refund", r#"{"order":"W-7"}"#, r#"{"state":"done","refund_cents":7400,"channel":"card"}"#);
    let calls = [order, refund];
    check(
        "How much did I get back for the drum, order W-7?",
        &calls,
        &[
            "The refund of €89.00 went to your card.",
            "We have refunded 89.00 EUR to your card.",
            "Ihre Trommel ist erledigt, die Erstattung von 89,00 € ging auf Ihre Karte.",
            "Votre commande est remboursée, le montant de 89,00 € sera crédité sur votre carte.",
            "El reembolso de 89,00 € está en su tarjeta.",
            "O reembolso de 89,00 € está no seu cartão.",
            "Il rimborso è andato a buon fine, l'importo di 89,00 € è sulla sua carta.",
            "您的退款已成功，退款金额为89元。",
        ],
        &[
            "The refund of €74.00 went to your card.",
            "The drum cost €89.00; €74.00 went back to your card.",
            "The refund for the drum of €89.00 is done, €74.00 in total.",
            "The drum for €89.00 has been refunded to your card.",
            "Die Erstattung von 74,00 € ging auf Ihre Karte.",
            "您的退款已成功，退款金额为74元。",
            "Refunds of more than €89.00 take longer.",
        ],
    );
    let refund_with_fee = [order, ("refund", "{}", r#"{"amount": 74.0, "fee": 5.0}"#)];
    check(
        "Refund it.",
        &refund_with_fee,
        &["The refund of 89.00 EUR is done."],
        &["The refund of 69.00 EUR is done."],
    );
    let both = [
        ("refund", r#"{"id":"a"}"#, r#"{"amount": 25.0}"#),
        ("refund", r#"{"id":"b"}"#, r#"{"amount": 25.0}"#),
    ];
    check("Refund both.", &both, &[], &["Both are refunded: the amount is 12.50 EUR each."]);
    check("Refund both.", &both, &["The refund is 60.00 EUR."], &["The refund is 50.00 EUR."]);
    let tickets = [
        ("get_order", "{}", r#"{"tickets":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"},{"id":"e"}]}"#),
        ("refund_tickets", r#"{"order":"T-4"}"#, r#"{"refunded": 5, "state": "cancelled"}"#),
    ];
    check(
        "Refund two tickets.",
        &tickets,
        &["Two tickets are refunded, the others remain valid.", "I have refunded 2 of your tickets."],
        &[
            "All five tickets are refunded, not only two.",
            "Your tickets are refunded.",
            "5 tickets are refunded.",
        ],
    );
}

#[test]
fn rankings_are_by_the_field_that_is_asked_for() {
    let rows = r#"{"lessons":[{"nr":11,"views":310,"completion":0.44},{"nr":12,"views":120,"completion":0.81},{"nr":13,"views":95,"completion":0.77},{"nr":14,"views":480,"completion":0.39}]}"#;
    let stats = [("get_stats", "{}", rows)];
    check(
        "Which two lessons have the best completion rate?",
        &stats,
        &["The best ones are lesson 14 and 11.", "Lessons 14 and 11."],
        &[
            "The best ones are lesson 12 and 13.",
            "Lessons 13 and 12.",
            "Lesson 14 has the most views, but lesson 12 and 13 have the best completion.",
        ],
    );
    check(
        "Which lessons have the most views?",
        &stats,
        &["Lessons 12 and 13 have the most views."],
        &["Lessons 14 and 11 have the most views."],
    );
    check(
        "Which lessons have the most views?",
        &stats,
        &[],
        &[
            "Lessons 12 and 13 lag far behind; most views went to 14.",
            "The most views has lesson 14, the least 13.",
        ],
    );
    let shops = r#"[{"shop":"Aldgate","city":"Leeds","sales":90},{"shop":"Birch","city":"York","sales":70},{"shop":"Cedar","city":"Leeds","sales":40},{"shop":"Dune","city":"York","sales":30}]"#;
    let sales = [("list_shops", "{}", shops)];
    check(
        "Which shop has the lowest sales?",
        &sales,
        &["Birch has the lowest sales."],
        &["Dune has the lowest sales."],
    );
    check("Which shop in Leeds has the lowest sales?", &sales, &[], &["Cedar has the lowest sales."]);
}

#[test]
fn several_rows_may_have_the_lowest_values() {
    let lines = r#"[{"line":"Nova","error_rate":0.6},{"line":"Luma","error_rate":0.2},{"line":"Arca","error_rate":0.4}]"#;
    check(
        "Which two lines have the lowest error rate?",
        &[("list_lines", "{}", lines)],
        &["Nova has the lowest error rate.", "Nova and Luma have the lowest error rate."],
        &[
            "Luma and Arca have the lowest error rate.",
            "Luma (0.2) and Arca (0.4) have the lowest error rate.",
        ],
    );
}

#[test]
fn values_of_the_object_beside_are_not_those_of_the_named_one() {
    let crew =
        r#"{"pilot":{"name":"Ines Moura","badge":"8812"},"copilot":{"name":"Karl Ode","badge":"4471"}}"#;
    let calls = [("get_crew", "{}", crew)];
    check(
        "Who is the pilot of flight 12?",
        &calls,
        &["The pilot of this flight is **Karl Ode**.", "Pilot: Karl Ode"],
        &[
            "The pilot of this flight is Ines Moura.",
            "The pilot is Ines Moura, the copilot is Karl Ode.",
            "The pilot flies with Karl Ode.",
            "The pilot of flight 12 is not Karl Ode.",
            "The copilot is Karl Ode.",
        ],
    );
    let plan = r#"{"current":{"plan":"Mini"},"booked":{"plan":"Maxi"}}"#;
    let changed = [("change_plan", r#"{"id":"C-9"}"#, plan)];
    check("Book the other plan.", &changed, &[], &["Your current plan is Maxi."]);
    check("Is Karl Ode the pilot?", &calls, &[], &["The pilot is Karl Ode, as you said."]);
    let titulaire = r#"{"titulaire":{"nom":"Rose Petit"},"suppléant":{"nom":"Luc Morin"}}"#;
    check(
        "Qui est le titulaire ?",
        &[("equipe", "{}", titulaire)],
        &["Le titulaire de ce poste est Luc Morin."],
        &["Le titulaire de ce poste est Rose Petit."],
    );
}

#[test]
fn values_of_another_year_are_not_those_of_the_named_one() {
    let fields = "campo;ettari;grano_2023;grano_2024\nPoggio Alto;2,1;412;388\nPiano;1,7;365;391\n";
    check(
        "Quanto grano ha dato Poggio Alto nel 2024?",
        &[("raccolti", "{}", fields)],
        &["Nel 2024 Poggio Alto ha dato 412 quintali.", "Poggio Alto ha dato 412 quintali di grano."],
        &[
            "Nel 2024 Poggio Alto ha dato 388 quintali.",
            "Nel 2024 Poggio Alto ha dato 388 quintali, nel 2023 ne aveva dati 412.",
            "Nel 2023 Poggio Alto ha dato 412 quintali.",
        ],
    );
}

#[test]
fn arrivals_are_not_departures() {
    let ship = r#"{"pol":{"port":"Bilbao","etd":"2026-03-04T18:00"},"pod":{"port":"Cork","eta":"2026-03-07T05:00"}}"#;
    let calls = [("get_voyage", "{}", ship)];
    check(
        "When does the container get to Cork?",
        &calls,
        &[
            "It is due in Cork on 4 March at 18:00.",
            "It arrives on 4 March at 18:00.",
            "The arrival is on 4 March at 18:00.",
        ],
        &[
            "It is due in Cork on 7 March at 05:00.",
            "It leaves Bilbao on 4 March and arrives on 7 March.",
            "It leaves for Cork on 4 March.",
            "On 4 March it departs from Bilbao.",
            "Please arrive at the quay by 17:00 on 4 March.",
            "You have to arrive at the quay on 4 March at 18:00.",
        ],
    );
    check(
        "¿Cuándo llega el contenedor a Cork?",
        &calls,
        &["La llegada del contenedor a Cork está prevista para el 4 de marzo."],
        &["La llegada del contenedor a Cork está prevista para el 7 de marzo."],
    );
}

#[test]
fn a_page_of_a_list_is_not_all_of_it() {
    let page = r#"{"pagina":1,"por_pagina":3,"total":14,"proxima_pagina":2,"itens":[{"id":811},{"id":812},{"id":815}]}"#;
    check(
        "Quantos pedidos pendentes temos?",
        &[("listar_pedidos", r#"{"estado":"pendente"}"#, page)],
        &["Temos 3 pedidos pendentes no momento."],
        &[
            "Temos 14 pedidos pendentes no momento.",
            "Há 3 pedidos na primeira página de um total maior.",
            "Temos 14 pedidos pendentes; 3 deles são 811, 812 e 815.",
        ],
    );
    let whole = r#"{"pagina":1,"total":3,"itens":[{"id":811},{"id":812},{"id":815}]}"#;
    check(
        "Quantos pedidos pendentes temos?",
        &[("listar_pedidos", "{}", whole)],
        &[],
        &["Temos 3 pedidos pendentes."],
    );
}

#[test]
fn times_of_named_rows_are_copied_in_other_languages() {
    let buses = r#"[{"ligne":"Bus 4471","depart":"17:52","quai":"4"},{"ligne":"Bus 4480","depart":"18:38","quai":"2"}]"#;
    check(
        "À quelle heure part le prochain bus pour Vichy après 17h30 ?",
        &[("departs", "{}", buses)],
        &["Le prochain bus pour Vichy (n° 4471) part à 17h25, quai 4.", "Le bus 4471 part à 17:25."],
        &[
            "Le prochain bus pour Vichy (n° 4471) part à 17h52, quai 4.",
            "Le bus 4471 part vers 17h52, arrivez avant 17h45.",
            "Le bus 4471 part à 17h52.",
            "Le bus 4471 arrive avant 18h20.",
        ],
    );
    let trains =
        r#"[{"zug":"RE 4471","abfahrt":"17:52","gleis":4},{"zug":"RE 4480","abfahrt":"18:38","gleis":2}]"#;
    check(
        "Wann fährt der RE 4471?",
        &[("abfahrten", "{}", trains)],
        &["Der RE 4471 fährt um 17.25 Uhr."],
        &["Der RE 4471 fährt um 17.52 Uhr.", "Der RE 4471 fährt um 17:56 Uhr."],
    );
}

#[test]
fn local_times_are_not_those_in_utc() {
    let window = r#"{"start":"2026-05-09T21:00:00Z","end":"2026-05-10T00:30:00Z"}"#;
    check(
        "When is the backup for us in Tokyo?",
        &[("get_window", "{}", window)],
        &["It ends at 12:30 am on Sunday, 10 May Tokyo time.", "It starts at 21:00 Tokyo time."],
        &["It ends at 9:30 am on Sunday, 10 May Tokyo time.", "It starts at 6 am on 10 May, Tokyo time."],
    );
    check(
        "When is the backup for us in London?",
        &[("get_window", "{}", window)],
        &[],
        &["It ends at 1:30 am on Sunday, 10 May London time.", "It starts at 21:00 London time."],
    );
}
