//! Work, memory and connections without a bound.

use super::Finding;

pub const FINDINGS: &[Finding] = &[
    (
        "C1: tool schemas whose references expand exponentially",
        "2,000 steps for 2^40 paths",
        &[(
            "tests/it/attacks/bounds.rs",
            &["a_schema_whose_references_fan_out", "a_schema_whose_references_fan_out_over_a_scalar"],
        )],
    ),
    (
        "H1: evaluation without a bound, and its effect on other senders",
        "steps for each trace and span, and on the shard's task; other shards accept requests",
        &[
            (
                "tests/it/attacks/bounds.rs",
                &[
                    "thousands_of_alternatives_for_each_of_fifty_thousand_items",
                    "thousands_of_agents_under_one",
                    "conversations_below_a_thousand_nested_steps",
                    "thousands_of_harmful_calls_in_an_open_trace",
                ],
            ),
            (
                "crates/eval/src/measure/path/metric/tests.rs",
                &[
                    "work_on_scores_is_counted_and_hides_no_harmful_call",
                    "runs_beyond_the_budget_are_unmeasured",
                ],
            ),
            (
                "crates/eval/src/measure/reasoning/invented_data.rs",
                &["final_answer_is_read_once_for_all_assumptions_of_a_run"],
            ),
            (
                "crates/eval/src/measure/checklist/log.rs",
                &["calls_of_many_tools_are_counted_in_linear_time_and_split"],
            ),
            (
                "crates/eval/src/measure/work_budget/tests.rs",
                &["steps_and_comparisons_grow_linearly_with_the_spans", "stop_ends_the_work"],
            ),
            (
                "crates/eval/src/measure/question_rounds/tests.rs",
                &[
                    "questions_beyond_the_work_budget_are_not_asked",
                    "prompts_count_as_work_and_the_clock_ends_the_work",
                ],
            ),
            (
                "crates/eval/src/measure/reasoning/evidence/tests.rs",
                &["searches_and_arithmetic_count_as_work"],
            ),
            (
                "crates/eval/src/recognise/tests/hostile.rs",
                &[
                    "calls_of_one_message_are_compared_in_linear_time",
                    "calls_are_joined_with_the_definitions_of_many_tools_in_linear_time",
                ],
            ),
            (
                "tests/it/attacks/bounds.rs",
                &["attempt_at_a_small_trace_that_needs_many_steps_ends_at_its_limit"],
            ),
            (
                "crates/eval/src/measure/work_budget/tests.rs",
                &["attempt_has_the_result_of_the_whole_budget_or_is_void"],
            ),
            (
                "src/pipeline/shard/tests/expensive.rs",
                &[
                    "expensive_trace_leaves_the_task_of_the_shard_to_others",
                    "spans_are_exported_if_the_evaluation_on_a_blocking_thread_panics",
                    "evaluations_on_blocking_threads_are_bounded_for_all_shards",
                ],
            ),
            ("src/pipeline/ingest/tests.rs", &["full_shard_refuses_only_requests_with_its_own_traces"]),
        ],
    ),
    (
        "H2: arguments of calls, parsed without a bound",
        "values of JSON for the bytes of the trace",
        &[("crates/eval/src/recognise/tests/hostile.rs", &["arguments_are_parsed_up_to_a_number_of_values"])],
    ),
    (
        "H3: requests that arrive drop by drop hold the memory for requests",
        "bytes that have arrived, a least rate, and a share for each peer",
        &[
            (
                "src/receive/tests/serving.rs",
                &[
                    "many_bodies_that_drip_leave_memory_to_others_and_are_rejected_for_their_rate",
                    "peer_with_many_large_bodies_leaves_a_share_to_others",
                ],
            ),
            ("src/receive/tests/http.rs", &["json_is_charged_twice_while_it_is_converted"]),
            ("src/receive/body/tests.rs", &["decompressor_is_charged_until_the_body_is_complete"]),
            ("src/receive/connections.rs", &["connections_of_one_address_or_ipv6_network_share_a_limit"]),
        ],
    ),
    (
        "H4: idle connections hold every place",
        "the number of connections",
        &[
            ("src/receive/tests/serving.rs", &["longest_idle_connection_is_closed_for_a_new_one"]),
            (
                "src/receive/connections.rs",
                &["addresses_that_share_all_permits_make_room_for_one_that_has_fewer"],
            ),
            ("src/admin.rs", &["probes_are_answered_while_idle_clients_hold_every_connection"]),
        ],
    ),
    (
        "S17.3: questions about steps visit every part of a message for each of its calls",
        "parts that are rendered, within a factor of 2 for each part, call or span; charged before",
        &[(
            "crates/eval/src/measure/ask/tests/growth.rs",
            &[
                "work_of_preparing_questions_grows_linearly",
                "content_of_a_step_is_charged_before_it_is_rendered",
            ],
        )],
    ),
    (
        "H6: large traces that wait use up the blocking threads",
        "two blocking threads",
        &[(
            "src/pipeline/shard/tests/judges.rs",
            &["large_traces_that_wait_for_the_exporter_use_no_blocking_thread"],
        )],
    ),
    (
        "M11: closed traces are remembered by each shard",
        "the configured number for all shards",
        &[(
            "src/pipeline/runtime_config.rs",
            &["all_shards_together_remember_the_configured_number_of_closed_traces"],
        )],
    ),
    (
        "M17: scarce memory closes more than it must, and sorts all open traces",
        "traces examined, and bytes closed",
        &[
            (
                "src/assemble/tests.rs",
                &[
                    "early_closing_examines_closed_traces_and_not_all_open_ones",
                    "previews_take_a_few_of_many_traces_and_none_twice",
                ],
            ),
            (
                "src/pipeline/budget.rs",
                &[
                    "closed_traces_that_are_not_delivered_cause_no_others_to_close",
                    "shards_together_free_the_excess_once",
                ],
            ),
        ],
    ),
    (
        "A5: questions before a call take memory, snapshots and the time of a shard",
        "one snapshot for all agents of a trace, two at once; bytes of awaited calls, positions and questions",
        &[
            (
                "src/pipeline/paths/tests.rs",
                &[
                    "questions_about_any_number_of_agents_make_one_snapshot_of_a_trace",
                    "snapshots_are_made_only_with_a_permit",
                    "a_trace_read_after_the_timeout_of_its_question_answers_the_next_one",
                    "awaited_calls_of_a_run_take_a_bounded_number_of_bytes",
                    "sessions_with_a_name_above_the_limit_are_not_kept",
                ],
            ),
            ("src/receive/paths.rs", &["values_are_counted_and_charged_before_they_are_parsed"]),
            (
                "crates/eval/src/measure/path/next/tests.rs",
                &[
                    "pending_call_keeps_its_arguments_only_if_a_task_reads_them",
                    "memory_of_a_position_grows_with_different_calls_and_not_with_their_texts",
                ],
            ),
        ],
    ),
    (
        "B1: streams that send no byte of their body hold headers and decompressors uncharged",
        "three quarters of the memory for reading for one peer",
        &[(
            "src/receive/body/tests.rs",
            &["headers_and_decompressor_are_charged_before_the_first_byte_of_the_body"],
        )],
    ),
    (
        "B2: one sender alone makes the service not ready",
        "ready while those within their share are admitted",
        &[("src/reservation.rs", &["limit_is_exhausted_when_a_holder_within_its_own_limit_is_refused"])],
    ),
    (
        "B3: a third large trace stops the task of its shard",
        "a small trace is taken while six large ones wait",
        &[("src/pipeline/shard/tests.rs", &["large_traces_that_wait_leave_the_task_of_the_shard_to_others"])],
    ),
    (
        "B7: a suspect that waits for a long section stops all shards",
        "other sections begin at once",
        &[(
            "crates/journal/src/evaluation_markers/tests.rs",
            &["sections_begin_while_a_suspect_waits_for_a_long_one"],
        )],
    ),
    (
        "R1: a large resource is copied for each of its spans, records or points",
        "bytes written: a few times those received; by trace up to 128 MiB",
        &[
            (
                "crates/otlp/src/write/tests.rs",
                &["large_resource_is_copied_for_a_bounded_share_of_the_spans"],
            ),
            ("src/export/split.rs", &["large_resource_is_copied_for_a_bounded_share_of_the_items"]),
            ("tests/it/attacks/bounds.rs", &["thousands_of_scopes_under_a_resource_of_megabytes"]),
        ],
    ),
    (
        "R2: resources are compared, hashed, read and charged for each span",
        "bytes hashed and compared: once those received, and 4 KiB for each comparison of an order",
        &[
            (
                "crates/otlp/src/trace/envelope.rs",
                &["large_fields_are_hashed_once_and_compared_in_few_bytes"],
            ),
            (
                "src/assemble/tests.rs",
                &["large_resource_of_many_scopes_is_charged_once_and_not_compared_by_content"],
            ),
            ("tests/it/attacks/bounds.rs", &["thousands_of_scopes_under_a_resource_of_megabytes"]),
        ],
    ),
    (
        "R3: lists of types of any length cost one step",
        "comparisons with the eight types",
        &[
            ("crates/eval/src/measure/schema/tests.rs", &["types_that_a_list_repeats_are_compared_once"]),
            ("tests/it/attacks/bounds.rs", &["a_thousand_identifiers_and_long_lists_of_types_in_one_schema"]),
        ],
    ),
    (
        "R4: a tool's schema is searched for every value of every call",
        "values of the schema, counted in the work budget",
        &[(
            "crates/eval/src/measure/provenance.rs",
            &["schema_is_read_once_for_the_identifiers_of_all_calls"],
        )],
    ),
    (
        "R5: prompts above agents are read for each agent",
        "parts of each prompt, once",
        &[(
            "crates/eval/src/recognise/tests/hostile.rs",
            &["prompts_above_thousands_of_agents_are_read_once"],
        )],
    ),
    (
        "R6: the last prompt is searched for the result of each failed call",
        "parts of the prompt, once",
        &[(
            "crates/eval/src/measure/reasoning/recovery.rs",
            &["prompt_is_searched_once_for_the_results_of_all_failed_calls"],
        )],
    ),
    (
        "R7: names of called tools are read for each claim",
        "names, once; tools for each claim, counted in the work budget",
        &[(
            "crates/eval/src/measure/reasoning/claimed_actions.rs",
            &["names_of_called_tools_are_read_once_for_all_claims"],
        )],
    ),
    (
        "R8: evaluation takes several times the memory that it is charged",
        "four times the trace while it is read, closed or open; twice while it waits for judges or for the page",
        &[
            (
                "src/pipeline/shard/tests/expensive.rs",
                &[
                    "large_trace_is_charged_for_its_recognised_form_while_it_is_evaluated",
                    "trace_that_waits_for_the_page_is_charged_for_its_recognised_form",
                ],
            ),
            (
                "src/pipeline/shard/tests/judges.rs",
                &[
                    "preview_is_charged_as_a_closed_trace_while_it_is_read_and_while_it_waits",
                    "trace_that_waits_for_a_judge_is_charged_with_logs_envelopes_and_questions",
                ],
            ),
            (
                "src/pipeline/paths/tests.rs",
                &["trace_that_is_read_for_a_question_or_the_page_is_charged_for_its_recognised_form"],
            ),
            ("src/page/history.rs", &["queue_does_not_exceed_its_bytes"]),
        ],
    ),
    (
        "R10: recorded traces may reach the default work budget",
        "captures, cases and small runs a hundredth of it; no result on a shape of the bench is `limit`, but where a schema \
         has as many values as there are calls",
        &[
            (
                "crates/eval/src/measure/work_budget/tests.rs",
                &["recorded_runs_take_less_than_a_hundredth_of_the_budget"],
            ),
            ("tests/it/attacks/bounds.rs", &["small_runs_take_less_than_a_hundredth_of_the_budget"]),
            (
                "crates/eval/src/measure/work_budget/tests/growth.rs",
                &["work_of_each_rule_grows_linearly", "work_on_each_shape_grows_linearly"],
            ),
        ],
    ),
    (
        "S1: rules that read texts again for each call, claim or number, and charge nothing",
        "each text once; counted work per span, sentence or row within a factor of 2",
        &[
            (
                "crates/eval/src/measure/work_budget/tests/growth.rs",
                &["work_of_each_rule_grows_linearly", "work_on_each_shape_grows_linearly"],
            ),
            (
                "crates/eval/src/measure/reasoning/skipped_step.rs",
                &["what_the_user_said_and_prompts_are_read_once_for_all_orders_and_calls"],
            ),
            (
                "crates/eval/src/measure/reasoning/wrong_amount.rs",
                &["texts_before_the_calls_are_read_once_for_all_their_numbers"],
            ),
            (
                "crates/eval/src/measure/reasoning/repeated_action.rs",
                &["results_are_searched_once_for_each_verb", "what_the_user_said_is_read_once_for_all_pairs"],
            ),
            (
                "crates/eval/src/measure/reasoning/claimed_actions.rs",
                &["instructions_are_read_once_for_all_claims_of_a_text"],
            ),
            (
                "crates/eval/src/measure/reasoning/claimed_actions/insufficient_calls.rs",
                &[
                    "denied_calls_are_read_once_for_all_claims",
                    "instructions_and_calls_are_read_once_for_all_claims_of_what_was_prepared",
                    "nothing_is_searched_beyond_the_budget",
                ],
            ),
            (
                "crates/eval/src/measure/reasoning/answer.rs",
                &["end_of_a_sentence_is_read_without_the_text_before_it"],
            ),
            (
                "crates/eval/src/measure/reasoning/contradicted/sources.rs",
                &["texts_that_are_results_are_found_in_one_pass"],
            ),
        ],
    ),
];
