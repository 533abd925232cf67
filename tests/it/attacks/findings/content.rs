//! Text of traces that reaches judges, prompts or logs that must not have it.

use super::Finding;

pub const FINDINGS: &[Finding] = &[
    (
        "H5: internal content in the questions of a trace of several services",
        "no text of an internal service",
        &[(
            "src/pipeline/shard/tests/private.rs",
            &[
                "content_of_an_internal_service_reaches_no_external_judge_in_any_order_of_arrival",
                "judges_and_rerankers_receive_no_content_of_excluded_services_in_any_order_of_arrival",
                "withheld_content_is_in_no_question_to_any_judge",
            ],
        )],
    ),
    (
        "S17.1: content of a service that spans of others repeat",
        "no text of a restricted service, whatever repeats it",
        &[
            (
                "src/pipeline/shard/tests/private.rs",
                &[
                    "repeated_content_of_an_internal_service_reaches_no_external_judge",
                    "repeated_withheld_content_is_in_no_question",
                ],
            ),
            (
                "crates/eval/src/measure/ask/tests/repeated.rs",
                &[
                    "repeated_content_counts_as_content_of_the_service_that_produced_it",
                    "repeated_withheld_content_is_not_shown",
                    "result_of_a_tool_around_spans_of_another_service_counts_as_content_of_every_service",
                    "spans_without_a_service_are_withheld_if_any_service_of_the_trace_is",
                ],
            ),
            (
                "crates/eval/src/measure/remote/tests.rs",
                &["repeated_content_of_another_service_counts_as_its_content_or_is_withheld"],
            ),
        ],
    ),
    (
        "S17.2: the error of a call without a span in the log of a checklist",
        "not quoted where content is withheld",
        &[(
            "crates/eval/src/measure/ask/tests/repeated.rs",
            &["log_of_a_run_repeats_nothing_that_is_withheld"],
        )],
    ),
    (
        "S17.6: questions about an open trace whose services are not all known",
        "none to a judge from which content of services is withheld",
        &[
            (
                "src/pipeline/shard/tests/private.rs",
                &["judges_from_which_services_are_withheld_are_asked_when_the_trace_has_closed"],
            ),
            (
                "crates/eval/src/measure/ask/tests/repeated.rs",
                &["nothing_is_asked_of_an_open_trace_while_content_is_withheld"],
            ),
        ],
    ),
    (
        "M9: text of a trace outside the fence of a prompt",
        "none",
        &[(
            "crates/eval/src/measure/ask/tests/attacks.rs",
            &[
                "no_text_of_a_trace_is_outside_the_fence_of_a_prompt",
                "attacks_cannot_close_the_fence_or_imitate_headings",
            ],
        )],
    ),
    (
        "B4: content of traces in logs; lists of names without a bound",
        "none; 64 bytes of a name",
        &[
            ("src/pipeline/harmful_calls.rs", &["log_of_a_harmful_call_contains_no_content_of_its_trace"]),
            ("tests/it/attacks/poison.rs", &["the_log_of_a_panic_has_its_location_and_nothing_of_the_trace"]),
            (
                "crates/eval/src/measure/path/metric/tests.rs",
                &["lists_of_calls_have_a_bounded_length_for_any_names_of_functions"],
            ),
        ],
    ),
    (
        "Papers 65a: withheld content in checklists and in the prompts about other spans",
        "no text of a withheld service",
        &[("src/pipeline/shard/tests/private.rs", &["withheld_content_is_in_no_question_to_any_judge"])],
    ),
    (
        "Papers 65b: only the service of the span that came first is checked",
        "no text of an internal or excluded service, in any order of arrival",
        &[(
            "src/pipeline/shard/tests/private.rs",
            &[
                "content_of_an_internal_service_reaches_no_external_judge_in_any_order_of_arrival",
                "judges_and_rerankers_receive_no_content_of_excluded_services_in_any_order_of_arrival",
            ],
        )],
    ),
];
