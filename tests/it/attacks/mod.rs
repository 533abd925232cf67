//! Attacks and accidents from a review of robustness: one or more tests for each finding, with its bound as
//! counted work, bytes or messages, not as time.
//!
//! [`FINDINGS`] lists where they are: in this folder, or next to the code that is tested.

mod bounds;
mod clocks;
mod poison;
mod recovery;

// Without a test: advisories on dependencies. Their database would have to be fetched, and `.ci/run` checks bans,
// licences and sources only; `cargo deny check advisories` is run where there is a network (deny.toml).

/// A finding, its bound, and its tests by file.
type Finding = (&'static str, &'static str, &'static [(&'static str, &'static [&'static str])]);

const FINDINGS: &[Finding] = &[
    (
        "C1: tool schemas whose references expand exponentially",
        "2,000 steps for 2^40 paths",
        &[(
            "tests/it/attacks/bounds.rs",
            &["a_schema_whose_references_fan_out", "a_schema_whose_references_fan_out_over_a_scalar"],
        )],
    ),
    (
        "C2: a trace that ends the process each time it is evaluated",
        "two attempts; spending of judges survives a restart",
        &[
            (
                "tests/it/attacks/poison.rs",
                &["a_trace_that_crashes_the_process_twice_is_exported_unmeasured"],
            ),
            (
                "crates/judge/src/budget.rs",
                &[
                    "restored_spending_counts_until_it_would_have_expired",
                    "restored_spending_counts_for_its_trace",
                ],
            ),
        ],
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
        "H6: large traces that wait use up the blocking threads",
        "two blocking threads",
        &[(
            "src/pipeline/shard/tests/judges.rs",
            &["large_traces_that_wait_for_the_exporter_use_no_blocking_thread"],
        )],
    ),
    (
        "M1: nothing answers during recovery",
        "probes are answered; receivers do not wait for a destination",
        &[
            ("src/pipeline/service/tests.rs", &["probes_are_answered_while_the_journal_is_recovered"]),
            (
                "tests/it/attacks/recovery.rs",
                &["requests_are_answered_although_recovered_traces_wait_for_a_destination"],
            ),
        ],
    ),
    (
        "M2: one 404 or UNIMPLEMENTED disables a signal",
        "one request in half a minute",
        &[(
            "src/export/tests/unreachable.rs",
            &[
                "signal_that_was_once_unsupported_is_sent_again",
                "signal_that_is_never_supported_is_sent_every_half_minute",
            ],
        )],
    ),
    (
        "A10: a signal that is unsupported since the start is dropped although it was acknowledged",
        "dead letters, up to 16 MiB",
        &[(
            "src/export/tests/unreachable.rs",
            &["signal_that_is_unsupported_from_the_start_becomes_dead_letters_of_bounded_size"],
        )],
    ),
    (
        "A11: SIGHUP does not open the file of the file exporter again; a file that exists keeps its mode",
        "the file exists without a further write; a warning",
        &[
            (
                "src/export/tests/file.rs",
                &["file_that_was_renamed_is_created_again_at_sighup_without_a_write"],
            ),
            ("src/export/file.rs", &["mode_of_an_existing_file_is_kept_and_reported"]),
        ],
    ),
    (
        "M3: RESOURCE_EXHAUSTED multiplies the requests",
        "one request for each retry",
        &[("src/export/tests/retries.rs", &["request_that_a_rate_limit_refuses_is_not_multiplied"])],
    ),
    (
        "M4: the file exporter is neither durable nor private nor rotated",
        "synced before it is acknowledged; mode 0600; files of a size",
        &[
            ("src/export/file.rs", &["lines_are_accepted_after_they_are_on_the_disk"]),
            (
                "src/export/tests/file.rs",
                &[
                    "file_that_was_renamed_or_removed_is_created_again_for_its_owner_only",
                    "file_is_rotated_by_size",
                ],
            ),
        ],
    ),
    (
        "M5: a refused reload changes budgets",
        "the limits before it",
        &[
            ("tests/it/extensions.rs", &["refused_reload_leaves_the_budgets_of_judges"]),
            (
                "crates/judge/src/tests/budgets_and_caches.rs",
                &["refused_reload_leaves_the_bound_of_the_disk_cache"],
            ),
        ],
    ),
    (
        "M6: a dead shard, writer, task or listener is not noticed",
        "no acknowledged span lost with a journal; the process ends",
        &[
            ("src/pipeline/shard/tests.rs", &["panic_in_a_shard_loses_no_span_and_is_reported"]),
            (
                "src/pipeline/shard/tests/judges.rs",
                &["panic_in_the_task_of_a_trace_is_reported_and_others_are_exported"],
            ),
            (
                "src/pipeline/service/tests.rs",
                &["failed_shard_is_reported_by_the_service", "panic_in_a_task_of_the_service_is_reported"],
            ),
            (
                "crates/journal/src/tests/failing.rs",
                &["panic_in_the_writer_or_the_sync_thread_is_reported_and_leaves_no_caller_waiting"],
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
        "M10: verdicts depend on the clocks of services",
        "shifts of up to 5 s change no verdict and no alarm",
        &[
            (
                "tests/it/attacks/clocks.rs",
                &[
                    "verdicts_do_not_depend_on_the_clock_of_the_tools_service",
                    "alarms_on_open_traces_do_not_depend_on_the_clock_of_the_tools_service",
                ],
            ),
            ("src/export/console/tests.rs", &["times_and_order_are_corrected_for_clock_skew"]),
        ],
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
        "M12: names of records are used again",
        "each name once",
        &[(
            "crates/journal/src/tests/directory.rs",
            &[
                "records_of_an_unreadable_segment_keep_their_numbers",
                "segments_of_version_1_are_recovered_as_current_ones",
            ],
        )],
    ),
    (
        "M13: a stalled body is answered with a status that clients do not retry",
        "503",
        &[("src/receive/tests/http.rs", &["body_that_stalls_or_breaks_off_is_503_so_that_clients_retry"])],
    ),
    (
        "M14: a malformed record or data point costs its neighbours",
        "one record or point",
        &[
            ("src/pipeline/ingest/tests.rs", &["malformed_log_record_or_data_point_is_rejected_alone"]),
            ("crates/otlp/src/metrics.rs", &["a_malformed_point_or_metric_is_only_counted"]),
        ],
    ),
    (
        "M15: certificates and credentials of exporters are read once",
        "one retry with renewed ones",
        &[(
            "src/export/tests/retries.rs",
            &[
                "certificates_are_read_again",
                "request_with_refused_credentials_is_sent_again_with_renewed_ones",
            ],
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
        "B5: the time of a proposed call and those of spans are of different clocks",
        "a difference of up to 5 s changes no answer from allowed to denied, and no verdict on times between calls",
        &[
            (
                "crates/eval/src/measure/path/next/tests.rs",
                &["answer_that_depends_on_the_difference_of_clocks_is_unknown"],
            ),
            (
                "tests/it/attacks/clocks.rs",
                &[
                    "verdicts_do_not_depend_on_the_clock_of_the_tools_service",
                    "alarms_on_open_traces_do_not_depend_on_the_clock_of_the_tools_service",
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
        "B7: a suspect that waits for a long section stops all shards",
        "other sections begin at once",
        &[(
            "crates/journal/src/evaluation_markers/tests.rs",
            &["sections_begin_while_a_suspect_waits_for_a_long_one"],
        )],
    ),
    (
        "A12: tests that rest on time",
        "what is counted or logged, or a clock that the test advances",
        &[
            (
                "src/receive/tests/serving.rs",
                &[
                    "connection_of_max_age_shuts_down_gracefully",
                    "streams_above_the_limit_wait_at_the_sender",
                ],
            ),
            (
                "src/receive/tests/listener_security.rs",
                &["changed_certificate_is_reloaded_and_an_unusable_one_is_not"],
            ),
            ("src/export/tests/queues.rs", &["drain_sends_until_the_deadline_and_drops_the_rest"]),
            (
                "crates/judge/src/tests/faults.rs",
                &[
                    "retry_after_applies_to_every_question",
                    "the_breaker_opens_after_failures_in_a_row_and_closes_after_a_success",
                ],
            ),
            (
                "crates/journal/src/evaluation_markers/tests.rs",
                &["waiting_is_not_recorded", "a_suspect_is_evaluated_alone"],
            ),
        ],
    ),
    (
        "Architecture 2.5, 1 and 2: a reload or a refusal forwards spans twice",
        "each span once",
        &[(
            "src/pipeline/ingest/tests.rs",
            &[
                "reload_while_a_request_waits_does_not_apply_to_that_request",
                "refused_request_is_not_forwarded",
            ],
        )],
    ),
    (
        "Architecture 2.5, 3 to 5: names and settings that do not reach every part",
        "every metric is counted; rules and the console use the configuration",
        &[
            ("tests/it/plans.rs", &["every_measured_plan_metric_is_in_the_self_metrics"]),
            (
                "crates/eval/src/measure/calls/attempts.rs",
                &["final_answer_tools_of_the_configuration_are_control_tools"],
            ),
            ("src/pipeline/components.rs", &["console_exporter_uses_the_conventions_of_a_reload"]),
        ],
    ),
    (
        "Architecture 2.5, 6: an evaluation with judges panics in async code",
        "judges answer inside a runtime",
        &[("tests/it/judged_outcome.rs", &["failing_trace_has_a_root_cause_and_a_score_by_its_judge"])],
    ),
    (
        "Architecture 2.5, 7: commands report one fault of the configuration differently",
        "the same text and exit code",
        &[("tests/it/consistency.rs", &["eval_and_consistency_report_the_same_fault_alike"])],
    ),
    (
        "Architecture 2.5, 8 and 9: a split vote is not applicable; a cache keyed by address outlives its text",
        "a judge error; the cache owns the text",
        &[
            (
                "crates/eval/src/measure/checklist/tests.rs",
                &["votes_without_majority_are_a_judge_error_that_lists_them"],
            ),
            ("crates/eval/src/measure/memo.rs", &["value_is_computed_once_per_text"]),
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
    (
        "L: dead letters, a thread that dies during fsync, a request that is sent twice, segments of any size",
        "files, refusals, copies, bytes",
        &[
            (
                "crates/journal/src/dead_letters.rs",
                &["files_are_deleted_after_retention_since_the_last_write"],
            ),
            (
                "crates/journal/src/config.rs",
                &["segment_is_neither_too_small_nor_too_large_to_be_read_into_memory"],
            ),
            ("src/pipeline/ingest/tests.rs", &["refused_request_is_not_forwarded"]),
            (
                "crates/journal/src/tests/syncing.rs",
                &["a_disk_that_writes_but_does_not_fsync_exerts_pressure_until_it_does"],
            ),
        ],
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
            ("src/page/history.rs", &["queue_takes_no_more_than_its_bytes"]),
        ],
    ),
    (
        "R9: a jump of the system's clock deletes dead letters",
        "none while the clocks differ by more than a minute in an hour, nor in the first hour",
        &[("crates/journal/src/dead_letters.rs", &["files_are_not_deleted_after_a_jump_of_the_clock"])],
    ),
    (
        "L: cache and journal in one folder",
        "a problem of the configuration",
        &[("src/config/tests.rs", &["cache_and_journal_have_different_folders"])],
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
    (
        "L: partial success of a destination",
        "rejected items are counted as dropped and logged, and no dead letters: the destination has taken the request",
        &[("src/export/tests.rs", &["partial_success_counts_rejected_items_and_exports_the_rest"])],
    ),
    (
        "L: a token file that is emptied revokes nobody",
        "the tokens before it, with an error that says so, as documented",
        &[("src/receive/auth.rs", &["tokens_are_reloaded_and_an_unusable_file_keeps_the_current_ones"])],
    ),
    (
        "L: files that `${file:}` names are not watched",
        "the configuration is read again after a change of any of them",
        &[("src/cli/watch.rs", &["files_with_secrets_and_certificates_are_watched"])],
    ),
];

#[test]
fn every_finding_has_its_tests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (finding, bound, files) in FINDINGS {
        assert!(!bound.is_empty() && !files.is_empty(), "{finding}");
        for (file, tests) in *files {
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            for test in *tests {
                let attributes = attributes(&source, test).unwrap_or_else(|| panic!("{file}: {test}"));
                let is_test = attributes
                    .iter()
                    .any(|attribute| *attribute == "#[test]" || attribute.starts_with("#[tokio::test"));
                let is_ignored = attributes.iter().any(|attribute| attribute.contains("ignore"));
                assert!(
                    is_test && !is_ignored,
                    "{file}: {test} is not a test, or is not run: {attributes:?}"
                );
            }
        }
    }
}

/// The attributes of a function, which are on lines of their own above it.
fn attributes<'s>(source: &'s str, function: &str) -> Option<Vec<&'s str>> {
    let is_definition =
        |line: &str| line.trim_start().trim_start_matches("async ").starts_with(&format!("fn {function}("));
    let lines: Vec<&str> = source.lines().collect();
    let line_index = lines.iter().position(|line| is_definition(line))?;
    let preceding_lines = lines.get(..line_index)?.iter().rev().map(|line| line.trim());
    Some(
        preceding_lines
            .take_while(|line| line.starts_with("#[") || line.starts_with("///"))
            .filter(|line| line.starts_with("#["))
            .collect(),
    )
}

#[test]
fn ignored_tests_and_comments_are_no_tests() {
    let source = "// a test\nfn one() {}\n\n    #[tokio::test]\n    /// Two.\n    async fn two() {}\n#[test]\n#[ignore]\nfn three() {}\n";
    assert_eq!(attributes(source, "one"), Some(vec![]));
    assert_eq!(attributes(source, "two"), Some(vec!["#[tokio::test]"]));
    assert_eq!(attributes(source, "three"), Some(vec!["#[ignore]", "#[test]"]));
    assert_eq!(attributes(source, "four"), None);
}
