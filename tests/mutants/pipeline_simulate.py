"""Planted bugs of the pipeline: simulations."""

from __future__ import annotations

from tests.mutants import Mutant

_DIARY = "faust_assigner/pipeline/simulate/diary.py"
_FACTS = "faust_assigner/pipeline/simulate/facts.py"
_MEASURED = "faust_assigner/pipeline/simulate/measured.py"
_POLICIES = "faust_assigner/pipeline/simulate/policies.py"
_RECORDED = "faust_assigner/pipeline/simulate/recorded.py"
_SCENARIOS = "faust_assigner/pipeline/simulate/scenarios.py"
_SETTINGS = "faust_assigner/pipeline/simulate/settings.py"
_WHAT_IF = "faust_assigner/pipeline/simulate/what_if.py"

_AT_DIARY = "tests/unit/pipeline/simulate/test_diary.py::test_"
_AT_RECORDED = "tests/unit/pipeline/simulate/test_recorded.py::test_"
_AT_SCENARIOS = "tests/unit/pipeline/simulate/test_scenarios.py::test_"
_AT_SETTINGS = "tests/unit/pipeline/simulate/test_settings.py::test_"
_AT_WHAT_IF = "tests/unit/pipeline/simulate/test_what_if.py::test_"
_PLAYED = "tests/integration/spark/test_simulate_spark.py::test_"

MUTANTS = (
    Mutant(
        "a restart is a leave and a join",
        _DIARY,
        "RETURN_S = 300.0",
        "RETURN_S = 0.0",
        (f"{_AT_SCENARIOS}a_recorded_week_is_read_as_it_happened",),
    ),
    Mutant(
        "a crash is dated when it was noticed",
        _DIARY,
        "max(0.0, at - session_s) if crashed else at",
        "at",
        (f"{_AT_DIARY}a_static_member_died_a_session_before_it_was_missed",),
    ),
    Mutant(
        "a quiet night is a crash of everybody",
        _DIARY,
        (
            "        return bool(\n"
            "            session_s and silence[member_id] >= enough and others and min(others) < enough / 2\n"
            "        )"
        ),
        "        return bool(session_s and silence[member_id] >= enough and True)",
        (f"{_AT_DIARY}a_member_that_fell_silent_for_a_session_crashed",),
    ),
    Mutant(
        "a static member that is back is a new worker",
        _DIARY,
        'name = member["rack"], member.get("instance_id") or member["member_id"]',
        'name = member["rack"], member["member_id"]',
        (f"{_AT_DIARY}a_static_member_that_returns_is_the_same_worker_however_late",),
    ),
    Mutant(
        "a recovery without records tells a speed",
        _MEASURED,
        "    if records >= LEAST_RECORDS:",
        "    if records > 0:",
        (f"{_AT_DIARY}costs_are_the_ledgers_own_where_it_measured_enough",),
    ),
    Mutant(
        "the shortest session counts",
        _MEASURED,
        "max(sessions)",
        "min(sessions)",
        (f"{_AT_RECORDED}the_longest_session_of_the_newest_decisions_counts",),
    ),
    Mutant(
        "warm recoveries with much to read are takeovers",
        _MEASURED,
        (
            "    warm = [\n"
            "        each.seconds\n"
            "        for each in recoveries\n"
            "        if not each.cold and each.records <= costs.acceptable_recovery_lag\n"
            "    ]"
        ),
        "    warm = [each.seconds for each in recoveries if not each.cold]",
        (f"{_AT_RECORDED}a_warm_recovery_with_much_to_read_is_no_takeover",),
    ),
    Mutant(
        "a decision stands before it was made",
        _RECORDED,
        "    at = bisect.bisect_right(times[0], moment)\n",
        "    at = bisect.bisect_left(times[0], moment)\n",
        (f"{_AT_RECORDED}a_decision_stands_from_its_very_moment_on",),
    ),
    Mutant(
        "weightless topics carry load",
        _RECORDED,
        (
            "    topics = [\n"
            "        topic for topic in facts.topics if topic.group_id == group_id and topic.topic not in idle\n"
            "    ]"
        ),
        "    topics = [topic for topic in facts.topics if topic.group_id == group_id]",
        (f"{_AT_RECORDED}topics_that_weigh_nothing_are_no_tasks_of_a_recorded_week",),
    ),
    Mutant(
        "recoveries of other groups calibrate",
        _RECORDED,
        "            recoveries=tuple(each for each in self.recoveries if each.group_id == group_id),",
        "            recoveries=self.recoveries,",
        (f"{_AT_RECORDED}facts_of_a_group_are_its_own",),
    ),
    Mutant(
        "a rolling deploy hits one worker again and again",
        _RECORDED,
        "    fair = [member_id for member_id in running if restarts[member_id] == fewest]",
        "    fair = list(running)",
        (f"{_AT_RECORDED}a_rolling_deploy_goes_round_before_it_begins_anew",),
    ),
    Mutant(
        "heavy partitions wander between groups",
        _RECORDED,
        (
            "    order = np.concatenate(\n"
            "        [\n"
            "            start + draw.permutation(group.partitions)\n"
            "            for group, start in zip(recorded.groups, recorded.offsets.tolist(), strict=False)\n"
            "        ]\n"
            "    )"
        ),
        "    order = draw.permutation(len(recorded.rates))",
        (f"{_AT_RECORDED}heavy_partitions_change_places_within_their_group",),
    ),
    Mutant(
        "the same scenario whatever its number",
        _SCENARIOS,
        "np.random.SeedSequence([seed, scenario_id])",
        "np.random.SeedSequence([seed])",
        (f"{_AT_RECORDED}each_scenario_has_a_seed_of_its_own",),
    ),
    Mutant(
        "hot partitions have no more state than others",
        _SCENARIOS,
        "        records.append(np.floor(shares * group.partitions * size))",
        "        records.append(np.floor(np.full(group.partitions, size)))",
        (f"{_AT_RECORDED}the_hot_partitions_are_also_the_large_ones",),
    ),
    Mutant(
        "static members are compared with dynamic ones",
        _SETTINGS,
        'base != other_base and ("static" in switches) == ("static" in other_switches)',
        "base != other_base",
        (f"{_AT_RECORDED}only_arms_whose_members_join_alike_are_compared",),
    ),
    Mutant(
        "a chance difference is a verdict",
        _SETTINGS,
        "    if interval is None or interval[0] <= 0 <= interval[1]:",
        "    if interval is None:",
        (f"{_AT_RECORDED}a_difference_that_may_be_chance_is_even",),
    ),
    Mutant(
        "differences are not paired",
        _SETTINGS,
        "values = np.array([mine[name] - theirs[name] for name in shared])",
        "values = np.array([mine[a] - theirs[b] for a, b in zip(shared, reversed(shared), strict=True)])",
        (f"{_AT_RECORDED}differences_are_taken_scenario_by_scenario",),
    ),
    Mutant(
        "the most standbys are recommended",
        _SETTINGS,
        'best = min(even, key=lambda arm: (arm["standbys"],',
        'best = min(even, key=lambda arm: (-arm["standbys"],',
        (f"{_AT_SETTINGS}the_fewest_standbys_among_settings_that_are_as_calm_win",),
    ),
    Mutant(
        "the winner is the loser",
        _SETTINGS,
        "    return policy if interval[1] < 0 else rival",
        "    return rival if interval[1] < 0 else policy",
        (f"{_AT_SETTINGS}where_the_other_policy_stops_less_it_is_said",),
    ),
    Mutant(
        "an unknown switch is taken",
        _POLICIES,
        "        if unknown:\n",
        "        if False:\n",
        (f"{_AT_SETTINGS}an_unknown_policy_is_refused_before_anything_runs",),
    ),
    Mutant(
        "aiokafka's strategies get standbys",
        _POLICIES,
        'counts = replicas if not name.startswith("aiokafka-") else (0,)',
        "counts = replicas",
        (f"{_AT_SETTINGS}arms_are_policies_with_switches_and_standbys",),
    ),
    Mutant(
        "a member is not known by its instance id",
        _WHAT_IF,
        (
            "    return (\n"
            "        (member.member_id,)\n"
            "        if member.instance_id is None\n"
            "        else (member.instance_id, member.member_id)\n"
            "    )"
        ),
        "    return (member.member_id,)",
        (f"{_AT_DIARY}remove_takes_an_instance_id_and_names_who_there_is",),
    ),
    Mutant(
        "new members crowd one rack",
        _WHAT_IF,
        "        crowd[rack] += 1\n",
        "",
        (f"{_AT_WHAT_IF}new_workers_stand_where_the_fewest_are",),
    ),
    Mutant(
        "a move to a standby is cold",
        _WHAT_IF,
        "holders = had | {name for key in kept for name in spares.get(key, ())}",
        "holders = had",
        (f"{_AT_WHAT_IF}losing_a_rack_with_standbys_elsewhere_is_warm",),
    ),
    Mutant(
        "on Spark a decision told twice counts as the later told",
        _FACTS,
        'F.min(told).alias("said")',
        'F.max(told).alias("said")',
        (f"{_PLAYED}a_recorded_week_is_the_same_week_on_spark",),
    ),
)
