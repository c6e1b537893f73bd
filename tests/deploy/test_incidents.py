"""What once went wrong between sites, hub and ledger, each with the tests that replay it and see
how it ends.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
INCIDENTS: dict[str, tuple[str, ...]] = {
    "a site died for good in a run over a graph, and the others waited without end": (
        "deploy/test_graph_rosters.py::test_a_run_goes_on_without_a_lost_site",
        "deploy/test_graph_rosters.py::test_a_graph_that_falls_apart_ends_the_run_with_the_last_state",
        "deploy/test_graph_rosters.py::test_the_operator_takes_a_site_out",
        "deploy/test_lasting.py::test_a_demonstration_that_loses_a_site_ends_by_itself",
    ),
    "a site was too slow for a patience that was not in the plan": (
        "deploy/test_graph_rosters.py::test_waits_are_in_the_plan_and_its_digest",
        "deploy/test_lasting.py::test_a_site_too_slow_for_the_deadline_of_the_plan_is_told_when_it_asks",
    ),
    "all sites of sums were started again while one was lost, and waited for its word without "
    "end": ("deploy/test_lasting.py::test_restarted_sites_stop_waiting_for_lost_witness",),
    "a run of a thousand rounds was only watched by hand": (
        "deploy/test_lasting.py::test_a_hub_holds_no_more_after_400_rounds_than_after_40",
    ),
    "sums of 200,000 columns were only tried by hand": (
        "deploy/test_lasting.py::test_sums_of_200_000_columns_are_those_of_one_process",
    ),
    "a ledger of 100,000 releases took seconds to open": (
        "ledger/test_counted.py::test_a_count_on_disk_is_so_many_charges",
        "ledger/test_counted.py::test_a_run_writes_each_event_once_and_charges_outside_do_not_mix_with_it",
    ),
    "a late site of a run of sums came back after the hub had gone: its key and reservation "
    "stayed": (
        "deploy/test_sums_endings.py::test_a_hub_that_ends_by_itself_waits_for_lost_sites",
        "deploy/test_sums_endings.py::test_a_site_that_is_ended_never_shares_again",
    ),
    "a greeting was incomplete, and nobody said so": (
        "deploy/test_watch.py::test_status_lists_waiting_and_awaited_sites",
        "deploy/test_watch.py::test_a_site_that_waits_says_so_again",
        "cli/test_cli_news.py::test_a_hub_says_again_and_again_who_waits_for_whom",
    ),
    "a hub was killed": (
        "deploy/test_relay.py::test_sites_wait_for_a_hub_that_comes_back",
        "deploy/test_sums_sites.py::test_a_hub_that_starts_again_goes_on_with_the_same_rounds",
    ),
    "a disk was full": (
        "deploy/test_relay.py::test_sites_wait_for_a_hub_whose_disk_is_full",
        "deploy/test_sums_endings.py::test_a_full_disk_leaves_no_key_after_the_next_start",
    ),
    "from nothing to a run of three sites took 13 commands and 16 copies": (
        "cli/test_cli_invite.py::test_six_commands_and_six_files_of_the_page_lead_to_three_reports",
    ),
    "hub status needed the right to write, and told no time": (
        "deploy/test_watch.py::test_status_works_without_write_access",
        "deploy/test_watch.py::test_a_reader_beside_a_writer_sees_what_was_committed",
    ),
    "final pages lacked the answer's sentence": (
        "deploy/test_answers_sites.py::test_pages_begin_with_the_answer",
    ),
    "a masking key outlived its run": (
        "deploy/test_sums_endings.py::test_a_site_that_is_ended_never_shares_again",
        "deploy/test_sums_endings.py::test_a_closed_run_leaves_no_key",
        "deploy/test_sums_endings.py::test_a_start_erases_keys_of_runs_that_cannot_go_on",
        "deploy/test_sums_endings.py::test_refused_message_leaves_no_key_after_manual_end",
    ),
    "a dead process's question took the new one's place": (
        "deploy/test_killed_sites.py::test_restarts_during_questions_resume",
    ),
    "known sites came back with new signing keys, and nobody was told": (
        "deploy/test_site_records.py::test_a_known_site_with_another_key_is_refused_unless_it_is_said_to_have_one",
        "deploy/test_site_records.py::test_sums_need_the_digest_of_the_plan_that_was_agreed_on",
        "cli/test_cli_amendments.py::test_a_lost_key_is_replaced_when_all_members_have_signed",
    ),
    "a ledger was restored from a backup between runs": (
        "deploy/test_site_records.py::test_restored_ledger_is_refused_by_any_trace_of_later_run",
        "deploy/test_hub_remembers.py::test_ledger_older_than_last_run_is_refused_without_local_results",
        "deploy/test_hub_remembers.py::test_ledger_without_end_of_run_is_refused_by_hub_record",
        "deploy/test_hub_remembers.py::test_ledger_without_greeting_is_refused",
    ),
    "a second ledger was made for the same rows": (
        "deploy/test_site_records.py::test_a_second_ledger_of_the_same_rows_is_refused",
        "cli/test_cli_raw_rows.py::test_a_site_goes_on_with_its_ledger_under_a_corrected_schema",
    ),
    "a ledger was lost": (
        "cli/test_cli_amendments.py::test_a_lost_ledger_counts_all_that_was_ever_planned",
    ),
    "the last line of a site told how long its solves took": (
        "deploy/test_site_records.py::test_the_last_line_holds_no_times_unless_they_are_asked_for",
    ),
    "a certificate was signed beyond the end of its authority, and nothing renewed the hub's": (
        "deploy/test_renewal.py::test_a_certificate_never_outlives_its_authority",
        "deploy/test_renewal.py::test_one_authority_follows_another_step_by_step",
        "deploy/test_renewal.py::test_a_hub_that_runs_takes_its_new_certificate",
    ),
    "a stolen certificate was good until it ended": (
        "deploy/test_renewal.py::test_revoked_certificates_are_refused_at_once_and_the_name_is_free",
    ),
    "one site's open requests took all of the hub's threads, and its refusals filled the log": (
        "deploy/test_relay.py::test_a_site_with_hundreds_of_open_requests_takes_nothing_from_the_others",
        "deploy/test_relay.py::test_refusals_are_reported_at_limited_rate",
    ),
    "an image did not build from a clone, and took keys and ledgers with it": (
        "house/test_container.py::test_all_that_the_build_needs_enters",
        "house/test_container.py::test_nothing_that_lies_in_a_clone_enters_the_image",
    ),
    "a run cost more of a larger lifetime budget, and nobody said so": (
        "ledger/test_life.py::test_share_of_lifetime_budget_is_what_a_ledger_charges",
        "ledger/test_life.py::test_wording_of_the_sentence_for_a_new_ledger",
    ),
    "the key that was read out was not the one that signs": (
        "cli/test_cli_invite.py::test_an_answer_that_was_changed_on_its_way_is_not_admitted",
        "cli/test_cli_invite.py::test_an_invitation_that_was_changed_on_its_way_is_noticed",
    ),
}


@pytest.mark.parametrize("incident", INCIDENTS)
def test_every_incident_is_replayed(incident: str) -> None:
    for place in INCIDENTS[incident]:
        file, _, name = place.partition("::")
        defined = {
            one.name
            for one in ast.parse((TESTS / file).read_text()).body
            if isinstance(one, ast.FunctionDef)
        }
        assert name in defined, place
