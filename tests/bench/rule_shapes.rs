//! Shapes of traces for the most expensive comparison of one rule: of orders with calls, amounts, contacts, claims,
//! results or sentences.
//!
//! Each shape reaches the comparison, and the rule finds nothing, or only at the end, so that it does not stop early.

use serde_json::{Value, json};
use verdict_otlp::trace::Span;

use super::{
    Shape, agent_span_with_prompt, call_part_with_arguments, model_call_with_tools, run_with_calls,
    sentences, text_part, tool_call_with_arguments, user_message,
};

/// Shapes, each with the size of its smallest compared trace. It differs because rules do not read traces with too many
/// calls.
pub const RULE_SHAPES: [(&str, u64, Shape); 17] = [
    ("rule: orders before actions", 30, orders_before_actions),
    ("rule: amounts of many calls", 8, amounts_of_many_calls),
    ("rule: contacts of many calls", 40, contacts_of_many_calls),
    ("rule: questions for what was said", 12, questions_with_known_answers),
    ("rule: parts and tools", 60, parts_and_tools),
    ("rule: actions on many things", 40, actions_on_many_things),
    ("rule: equal calls with results", 40, equal_calls_with_results),
    ("rule: claims of denied actions", 40, claims_of_denied_actions),
    ("rule: claims about one action", 20, claims_about_one_action),
    ("rule: claims of what was made", 20, claims_of_sending_drafts),
    ("rule: dots of one text", 800, |n| {
        run_with_calls(&[], &user_message("Wait."), &[], &".\t".repeat(n as usize))
    }),
    ("rule: results shown again", 20, results_shown_again),
    ("rule: sentences about one list", 20, sentences_about_one_list),
    ("rule: rows of one list", 30, rows_of_one_list),
    ("rule: lists of one run", 12, lists_of_one_run),
    ("rule: columns of one page", 30, columns_of_one_page),
    ("rule: refusals and a long answer", 30, refusals_and_a_long_answer),
];

const PROMPT: &str = "You help customers. Be kind, and brief. Never promise what you cannot do.";

fn system_message(content: &str) -> Value {
    json!({ "role": "system", "parts": [text_part(content)] })
}

fn assistant_message(content: &str) -> Value {
    json!({ "role": "assistant", "parts": [text_part(content)] })
}

fn tool_definitions<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let parameters = json!({ "type": "object" });
    let definition = |name| json!({ "type": "function", "name": name, "parameters": parameters });
    Value::from(names.into_iter().map(definition).collect::<Vec<Value>>()).to_string()
}

/// A run of `n` spans in which model calls and tool calls alternate, with `answer` as its final answer.
fn alternating_calls(
    n: u64,
    (prompt, task, tools): (&str, &str, &[&str]),
    call: impl Fn(u64) -> (&'static str, Value, String),
    answer: &str,
) -> Vec<Span> {
    let tools = tool_definitions(tools.iter().copied());
    let input = [system_message(prompt), user_message(task)];
    let mut spans = vec![agent_span_with_prompt(1, 0, "desk", task)];
    for i in 1..n / 2 {
        let (name, arguments, result) = call(i);
        let request = call_part_with_arguments(name, i, &arguments);
        spans.push(model_call_with_tools(2 * i, 1, &tools, &input, &[request]));
        spans.push(tool_call_with_arguments(2 * i + 1, 1, name, i, &arguments, &result));
    }
    spans.push(model_call_with_tools(2 * (n / 2), 1, &tools, &input, &[text_part(answer)]));
    spans
}

/// Turns of a dialogue, each with an action. The instructions have orders about the same action on other objects.
fn orders_before_actions(n: u64) -> Vec<Span> {
    const TASK: &str = "Please cancel the contracts that I name.";
    let orders = format!(
        "{PROMPT} {}",
        sentences(40, |_| { "Before cancelling a contract of a vessel, call check_code.".to_owned() })
    );
    let tools = tool_definitions(["check_code", "cancel_contract"]);
    let mut spans = vec![agent_span_with_prompt(1, 0, "desk", TASK)];
    for i in 1..=n / 3 {
        let confirmation_question = format!("Shall I cancel the contract K-{i}?");
        let consent =
            format!("Yes, cancel K-{i} now. I moved to another town in spring, and it has no branch there.");
        let input = [system_message(&orders), user_message(TASK)];
        let next = [
            system_message(&orders),
            user_message(TASK),
            assistant_message(&confirmation_question),
            user_message(&consent),
        ];
        let arguments = json!({ "contract_no": format!("K-{i}") });
        let position = 3 * i;
        spans.push(model_call_with_tools(
            position - 1,
            1,
            &tools,
            &input,
            &[text_part(&confirmation_question)],
        ));
        spans.push(model_call_with_tools(
            position,
            1,
            &tools,
            &next,
            &[call_part_with_arguments("cancel_contract", i, &arguments)],
        ));
        spans.push(tool_call_with_arguments(
            position + 1,
            1,
            "cancel_contract",
            i,
            &arguments,
            r#"{"ok":true}"#,
        ));
    }
    let input = [system_message(&orders), user_message(TASK)];
    spans.push(model_call_with_tools(3 * (n / 3) + 2, 1, &tools, &input, &[text_part("That is all.")]));
    spans
}

/// Each call has the amounts of the result before it; the answer states an amount that no call has.
fn amounts_of_many_calls(n: u64) -> Vec<Span> {
    let amount = |i: u64, p: u64| 2_000 + 20 * i + p;
    let call = |i: u64| {
        let arguments: Value =
            Value::Object((0..20).map(|p| (format!("p{p}"), json!(amount(i, p)))).collect());
        let next: String = (0..20).map(|p| format!("{} ", amount(i + 1, p))).collect();
        let name = if i == 1 { "get_rates" } else { "create_order" };
        (name, arguments, format!("It is set up. The next ones: {next}"))
    };
    let task = "Set up a standing order of 1150 a month.";
    alternating_calls(n, (PROMPT, task, &["get_rates", "create_order"]), call, "Done: 1150 a month.")
}

/// Each call has the telephone number of the result before it, in another notation.
fn contacts_of_many_calls(n: u64) -> Vec<Span> {
    let call = |i: u64| {
        let phone = format!("+44 7700 9{:05}", 10_000 + i);
        let next = format!("The next guest has 07700-9{:05}, and is late.", 10_001 + i);
        let name = if i == 1 { "get_guests" } else { "book_cab" };
        (name, if i == 1 { json!({}) } else { json!({ "phone": phone }) }, next)
    };
    alternating_calls(n, (PROMPT, "Book a cab for each guest.", &["get_guests", "book_cab"]), call, "Done.")
}

fn questions_with_known_answers(n: u64) -> Vec<Span> {
    let call = |i: u64| ("get_depots", json!({ "page": i }), format!("Depot {i} is open until noon."));
    let task = "Please arrange a pickup for parcel JD0146002213.";
    alternating_calls(n, (PROMPT, task, &["get_depots", "arrange_pickup"]), call, "Which day suits you?")
}

/// A request with two parts, and `n` tools that serve neither of them.
fn parts_and_tools(n: u64) -> Vec<Span> {
    let task = "Cancel the order W-4411 and then update my emergency contact, please.";
    let names: Vec<String> = (0..n).map(|i| format!("update_{i}_thing")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.extend(["cancel_order", "update_emergency_contact"]);
    let call = |_| ("cancel_order", json!({ "order": "W-4411" }), "It is cancelled.".to_owned());
    alternating_calls(
        12,
        (PROMPT, task, &names),
        call,
        "I have cancelled it. The emergency contact is as you gave it.",
    )
}

/// Lookups of orders that can be refunded, and refunds of other orders.
fn actions_on_many_things(n: u64) -> Vec<Span> {
    let call = |i: u64| match i < n / 4 {
        true => {
            let result = format!("Order W-{i}: it is on its way, can be refunded, and was paid in spring.");
            ("get_order", json!({ "order": format!("W-{i}") }), result)
        }
        false => ("refund_order", json!({ "order": format!("V-{i}77") }), "ok".to_owned()),
    };
    alternating_calls(n, (PROMPT, "Refund what I name.", &["get_order", "refund_order"]), call, "Done.")
}

/// Equal calls, each of which creates a booking that the user asks for.
fn equal_calls_with_results(n: u64) -> Vec<Span> {
    let call = |i: u64| ("book_court", json!({ "day": "Monday" }), format!(r#"{{"booking":"BK-22{i}"}}"#));
    let task = format!(
        "Book the court on Monday again and again. {}",
        sentences(20, |_| { "I play in the evening with a friend.".to_owned() })
    );
    alternating_calls(n, (PROMPT, &task, &["book_court"]), call, "Done.")
}

/// Each model call claims an action that the tool call before it was denied.
fn claims_of_denied_actions(n: u64) -> Vec<Span> {
    let tools = tool_definitions(["cancel_plan"]);
    let (task, arguments) = ("Cancel my plan.", json!({ "account": "AC-3391" }));
    let denied_result = r#"{"accepted":false,"reason":"ALREADY_CANCELLED"}"#;
    let input = [system_message(PROMPT), user_message(task)];
    let mut spans = vec![agent_span_with_prompt(1, 0, "desk", task)];
    for i in 1..=n / 2 {
        let claim = text_part("I have cancelled your plan.");
        spans.push(tool_call_with_arguments(2 * i, 1, "cancel_plan", i, &arguments, denied_result));
        spans.push(model_call_with_tools(2 * i + 1, 1, &tools, &input, &[claim]));
    }
    spans
}

/// One answer whose sentences claim an action that was not called. The rule reads the instructions, which may state
/// that another action includes it.
fn claims_about_one_action(n: u64) -> Vec<Span> {
    let prompt = sentences(n, |i| format!("Rule {i}: be kind to the customer."));
    let claims = sentences(n, |i| format!("I have cancelled order {i}, and I have refunded price {i}."));
    let call = |_| ("cancel_order", json!({ "order": "W-4411" }), "ok".to_owned());
    alternating_calls(6, (&prompt, "Cancel what I name.", &["cancel_order", "issue_refund"]), call, &claims)
}

/// One answer whose sentences claim to have sent letters of which only drafts were created.
fn claims_of_sending_drafts(n: u64) -> Vec<Span> {
    let prompt = sentences(n, |i| format!("Rule {i}: be kind to the customer."));
    let claims = sentences(n, |i| format!("I have emailed letter {i} to Ana."));
    let call = |i: u64| ("create_draft", json!({ "letter": i }), format!(r#"{{"draft":"d{i}"}}"#));
    alternating_calls(
        2 * n.min(200),
        (&prompt, "Write to Ana.", &["create_draft", "send_draft"]),
        call,
        &claims,
    )
}

/// A prompt that repeats earlier results with other white space, and an answer that swaps values of two rows.
fn results_shown_again(n: u64) -> Vec<Span> {
    let result = |i: u64| {
        let note = format!("on its way to depot {i}, ").repeat(4);
        json!({ "order": format!("W-{i}"), "note": note }).to_string()
    };
    let last_result =
        json!([{ "id": "X-77", "arrives": "9 December" }, { "id": "X-78", "arrives": "12 December" }]);
    let task = "When do X-77 and X-78 arrive?";
    let tools = tool_definitions(["get_order"]);
    let input = [system_message(PROMPT), user_message(task)];
    let mut spans = vec![agent_span_with_prompt(1, 0, "desk", task)];
    let mut shown = input.to_vec();
    for i in 1..=n / 2 {
        let arguments = json!({ "n": i });
        let result = if i + 2 > n / 2 { last_result.to_string() } else { result(i) };
        shown.push(user_message(&result.replace("\":\"", "\":  \"")));
        spans.push(model_call_with_tools(
            2 * i,
            1,
            &tools,
            &input,
            &[call_part_with_arguments("get_order", i, &arguments)],
        ));
        spans.push(tool_call_with_arguments(2 * i + 1, 1, "get_order", i, &arguments, &result));
    }
    shown.push(user_message(task));
    let answer = "X-77 arrives on 12 December. X-78 arrives on 9 December.";
    spans.push(model_call_with_tools(2 * (n / 2) + 2, 1, &tools, &shown, &[text_part(answer)]));
    spans
}

/// A list of `n` items with amounts, kinds and states.
fn list_with_rows(n: u64) -> Value {
    let row = |i: u64| {
        let (kind, state) = (["meals", "travel", "hotel"][i as usize % 3], ["open", "paid"][i as usize % 2]);
        let due = format!("2025-03-{:02}", 1 + i % 28);
        json!({ "id": format!("W-{i}"), "kind": kind, "amount": 10.5 + i as f64, "state": state, "due": due })
    };
    json!({ "items": (0..n).map(row).collect::<Vec<_>>(), "total": n + 7, "has_more": true })
}

/// A run whose calls return `lists`, with `answer` as its final answer.
fn run_with_lists(lists: &[Value], answer: &str) -> Vec<Span> {
    let calls: Vec<_> =
        lists.iter().map(|list| ("list_items", json!({ "page": 1 }), list.to_string())).collect();
    run_with_calls(
        &calls,
        &user_message("List all items, with the sum of each kind and when W-3 is due."),
        &["list_items"],
        answer,
    )
}

const ANSWER_ABOUT_LIST: &str = "Meals: 112.50\nTravel: 119.50\nHotel: 141.70\n\nThere are 12 open items. 6 of them are meals. \
    In total they come to 512.40. W-3 is due on 4 March 2025. It is open and comes to 13.50.";

fn sentences_about_one_list(n: u64) -> Vec<Span> {
    let sentence = |i: u64| match i % 3 {
        0 => format!("W-{} is due on {} March 2025 and open.", i % 20, 1 + i % 28),
        1 => format!("{} of them are meals.", i % 9),
        _ => format!("The {} travel items come to {}.50.", i % 7, 100 + i),
    };
    run_with_lists(&[list_with_rows(20)], &format!("{ANSWER_ABOUT_LIST}\n{}", sentences(n, sentence)))
}

fn rows_of_one_list(n: u64) -> Vec<Span> {
    run_with_lists(&[list_with_rows(n)], ANSWER_ABOUT_LIST)
}

fn lists_of_one_run(n: u64) -> Vec<Span> {
    let lists: Vec<Value> = (0..n / 2).map(|i| list_with_rows(6 + i % 3)).collect();
    run_with_lists(&lists, ANSWER_ABOUT_LIST)
}

/// A page of a longer list, whose two items have many numbers, and an answer that counts them.
fn columns_of_one_page(n: u64) -> Vec<Span> {
    let item: Value = Value::Object((0..n).map(|i| (format!("a{i}"), json!(1))).collect());
    let page = json!({ "has_more": true, "items": [item, item] }).to_string();
    let call = |i: u64| ("list_items", json!({ "page": i }), page.clone());
    alternating_calls(4, (PROMPT, "How many items are there?", &["list_items"]), call, "There are 2 items.")
}

/// Actions that are refused, and an answer of many words that asks the user.
fn refusals_and_a_long_answer(n: u64) -> Vec<Span> {
    let call = |i: u64| {
        let error = format!("Error: booking B-{i} cannot be deleted, since its guest has already arrived.");
        ("delete_booking", json!({ "booking": format!("B-{i}") }), error)
    };
    let words: String = (0..900).map(|i| format!("parcel{i} ")).collect();
    let answer = format!("{words}. Shall I go on?");
    alternating_calls(n, (PROMPT, "Delete the bookings of June.", &["delete_booking"]), call, &answer)
}
