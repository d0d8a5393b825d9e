"""Where each case is: its id, what operators tripped over, and the tests that hold it. `test_index.py` finds them all.

The cases come from public reports of services of this kind: uploads, databases, queues, federations, pages.
"""

A, B, C, E, F, G = (
    f"tests/cases/test_{name}.py"
    for name in ("a_container", "b_state_dict", "c_http", "e_database", "f_federation", "g_distillation")
)
BREAKS, STORM, JOBS, RUNNER = (
    "tests/chaos/test_breaks.py",
    "tests/chaos/test_storm.py",
    "tests/service/operations/progress/test_jobs.py",
    "tests/worker/test_runner.py",
)
GRID = "tests/conformance/test_files.py"
LEASE = "test_a_worker_that_was_away_beyond_its_lease_cannot_publish"

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "A01": (
        "damaged container",
        (f"{A}::test_a01_damaged_containers", f"{GRID}::test_it_is_refused_and_leaves_nothing"),
    ),
    "A02": ("attacker-controlled size field", (f"{A}::test_a02_size_fields_ask_for_nothing",)),
    "A03": ("parser differential", (f"{A}::test_a03_one_reader_for_checking_and_averaging",)),
    "A04": ("layout lies", (f"{A}::test_a04_layouts_that_lie",)),
    "A09": ("silent scramble of values", (f"{A}::test_a09_values_survive_the_writer",)),
    "A11": ("dtype not decodable", (f"{A}::test_a11_dtypes_that_are_not_wanted",)),
    "A16": ("code execution by file format", (f"{A}::test_a16_no_pickle_is_ever_read",)),
    "B01": ("wrapper prefix in keys", (f"{B}::test_b01_wrappers_prefixes",)),
    "B03": ("partial match accepted", (f"{B}::test_b03_partial_matches",)),
    "B05": ("zero-dimensional tensors, counters", (f"{B}::test_b05_counters_stay_counters",)),
    "B06": ("buffers left out of the average", (f"{B}::test_b06_buffers_are_averaged",)),
    "B08": ("negative variance from a server optimiser", (f"{B}::test_b08_variances_stay_positive",)),
    "C01": ("client gone during upload", (f"{C}::test_c01_client_gone_during_upload",)),
    "C02": (
        "size limit only by Content-Length",
        (f"{C}::test_c02_no_way_round_the_size_limit", f"{C}::test_c02_a_sound_body_above_the_limit"),
    ),
    "C04": ("compressed request body", (f"{C}::test_c04_compressed_body",)),
    "C07": ("thread and connection starvation", (f"{C}::test_c07_a_burst_of_uploads",)),
    "C10": ("NaN in a JSON answer", (f"{C}::test_c10_nan_in_a_metric",)),
    "C12": (
        "work lost at shutdown",
        (
            f"{F}::test_c12_work_promised_by_an_answer",
            f"{BREAKS}::test_what_was_promised_goes_on_after_the_api_is_gone",
        ),
    ),
    "C14": ("answer lost, client retries", (f"{C}::test_c14_the_answer_got_lost",)),
    "C19": ("names used as paths", (f"{C}::test_c19_names_are_no_paths",)),
    "D01": (
        "task delivered again while it runs",
        (f"{BREAKS}::test_wake_ups_that_come_again_while_their_job_runs", f"{BREAKS}::{LEASE}"),
    ),
    "D02": ("CUDA after fork", ("tests/cases/test_d_workers.py::test_d02_nothing_touches_cuda_before_the_child",)),
    "D04": (
        "worker child killed",
        (
            "tests/e2e/test_kills.py::test_worker_killed_in_the_middle_of_a_job",
            f"{JOBS}::test_a_job_that_fails_again_and_again_holds_nobody_up",
            "tests/cases/test_d_workers.py::test_d04_a_job_that_is_always_too_large",
            f"{RUNNER}::test_a_child_has_its_own_limit_of_memory",
        ),
    ),
    "D08": ("worker alive but deaf", (f"{BREAKS}::test_a_broker_that_breaks_again_and_again",)),
    "D10": ("cancel does not cancel", (f"{BREAKS}::test_a_running_job_is_cancelled_and_stays_so",)),
    "D14": ("task sent before the commit", (f"{BREAKS}::test_a_wake_up_that_comes_too_early_or_not_at_all",)),
    "E01": ("SQLite writer conflict", (f"{E}::test_e01_fifty_clients_at_the_same_moment",)),
    "F01": ("weights sum to zero", (f"{F}::test_f01_weights_that_sum_to_zero",)),
    "F03": ("one NaN poisons all", (f"{F}::test_f03_one_nan_poisons_nobody",)),
    "F05": ("late or stale update", (f"{F}::test_f05_late_and_stale_updates",)),
    "F07": ("same client twice in a round", (f"{F}::test_f07_the_same_client_twice",)),
    "F09": ("waiting for ever", (f"{F}::test_f09_nobody_waits_for_ever",)),
    "F11": (
        "crash while publishing",
        (
            f"{F}::test_f11_a_crash_while_publishing",
            f"{STORM}::test_twenty_kills_between_the_last_upload_and_the_model",
        ),
    ),
    "F15": ("label spaces differ", (f"{F}::test_f15_label_spaces_that_differ",)),
    "F18": ("wrong mean", (f"{F}::test_f18_the_mean_of_those_who_came",)),
    "F20": ("empty or tiny local data", (f"{F}::test_f20_empty_and_tiny_data",)),
    "G01": (
        "ensemble of logits or of probabilities",
        (f"{G}::test_g01_mean_of_logits_and_mean_of_probabilities",),
    ),
    "G07": ("saturated discriminator", (f"{G}::test_g07_saturated_discriminators",)),
    "H04": ("names shown in the dashboard", ("tests/e2e/test_dashboard.py::test_markup_in_names_is_text_everywhere",)),
}
