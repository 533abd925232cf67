//! Failures, restarts and reloads: losses, repetitions and wrong verdicts.

use super::Finding;

pub const FINDINGS: &[Finding] = &[
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
            ("tests/it/plans/traces.rs", &["every_measured_plan_metric_is_in_the_self_metrics"]),
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
