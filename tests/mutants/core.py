"""Planted bugs of the planner's core."""

from __future__ import annotations

from tests.mutants import Mutant

_TRANSPORT = "faust_assigner/actives/transport.py"
_MATCHING = "faust_assigner/actives/semi_matching.py"
_PROMOTION = "faust_assigner/promotion.py"
_HOLDERS = "tests/unit/actives/test_promotion.py::test_"
_SMALL = "tests/unit/actives/test_semi_matching.py::test_small_cases_equal_brute_force"
_LARGE = "tests/unit/actives/test_semi_matching.py::test_larger_cases_equal_min_cost_flow"
_PROMOTIONS = "tests/property/test_promotions.py::"
_ROUNDS = f"{_PROMOTIONS}test_after_deaths_and_stops_orphans_are_where_the_oracle_would_put_them"
_STOP_ALL = f"{_PROMOTIONS}test_stop_all_start_all_moves_nothing"
_WARM = "tests/property/test_warmth.py::test_assigned_numbers_are_as_warm_as_the_oracles"
_FILL, _REFILL = "faust_assigner/standbys/fill.py", "faust_assigner/standbys/refill.py"
_TIES = "tests/unit/standbys/test_tie_orders.py::test_"
_DEALT = f"{_TIES}a_deal_gives_to_the_smallest_pair_then_the_lowest_load_then_round_the_ring"
_DEALT_TWICE = f"{_TIES}a_deal_of_two_each_takes_the_same_order"
_REFILLED = f"{_TIES}a_refill_gives_to_who_is_within_its_share_then_to_the_lowest_load_then_the_smallest_pair"
_WIDE = "tests/property/test_exactness.py::test_no_wide_instance_is_sub_optimal"


def _without(term: str, *red: str) -> Mutant:
    return Mutant(
        story=f"orphans are placed without the term {term}",
        file=_MATCHING,
        old="        if term != Term.STATE or orphans.state is not None:\n",
        new=f"        if term != Term.{term} and (term != Term.STATE or orphans.state is not None):\n",
        red=red,
    )


MUTANTS = (
    Mutant(
        story="a digit too narrow: group balance carries over into total balance",
        file=_TRANSPORT,
        old="return cls(stay, group, squares * group)",
        new="return cls(stay, group, 3 * group)",
        red=(_WIDE,),
    ),
    Mutant(
        story="staying outweighs group balance",
        file=_TRANSPORT,
        old="group = (2 * cells + 1) * stay",
        new="group = 1",
        red=(_WIDE,),
    ),
    _without("LOAD", _SMALL, _LARGE),
    _without("GROUP", _SMALL, _LARGE, _ROUNDS),
    _without("RETURNED", _SMALL, _LARGE),
    _without("STATE", _SMALL),
    _without("AT_TARGET", _SMALL, _LARGE),
    Mutant(
        story="an arc that earlier terms closed is used again",
        file=_MATCHING,
        old="            out &= plus + member == sink\n",
        new="",
        red=(_SMALL, _LARGE),
    ),
    Mutant(
        story="who owned a task before a stop of everybody is not asked",
        file="faust_assigner/previous.py",
        old="        if any(wishes[t].members for t in group.topics):\n",
        new="        if False:\n",
        red=(
            _STOP_ALL,
            f"{_PROMOTIONS}test_three_workers_of_six_partitions_come_back_as_they_were",
        ),
    ),
    Mutant(
        story="a memory counts although the state is elsewhere",
        file="faust_assigner/previous.py",
        old="    return np.where(mine == most, former, NOBODY)\n",
        new="    return former\n",
        red=(f"{_PROMOTIONS}test_a_memory_without_the_state_gives_way",),
    ),
    Mutant(
        story="a memory takes a task from its living owner",
        file="faust_assigner/previous.py",
        old="    former = np.where(owner == NOBODY, last, NOBODY)\n",
        new="    former = last\n",
        red=(f"{_PROMOTIONS}test_a_memory_is_no_claim",),
    ),
    Mutant(
        story="the target does not keep what a restarted member owned",
        file="faust_assigner/sticky.py",
        old="        last = previous.last_owner\n",
        new="        last = previous.owner\n",
        red=(_STOP_ALL,),
    ),
    Mutant(
        story="topics claimed differently by the same members are taken for alike",
        file="faust_assigner/claims.py",
        old="        return kinds == {range} and self.claims == other.claims\n",
        new="        return kinds == {range}\n",
        red=(
            "tests/unit/test_claims.py::test_topics_claimed_by_the_same_members_with_other_numbers_are_read_apart",
        ),
    ),
    Mutant(
        story="a hostile range is laid out beyond its topic",
        file="faust_assigner/claims.py",
        old="min(max(claim.stop, 0), count)",
        new="max(claim.stop, 0)",
        red=("tests/unit/test_claims.py::test_ranges_are_clipped_before_they_are_laid_out",),
    ),
    Mutant(
        story="Faust's leader topic counts as work",
        file="faust_assigner/model.py",
        old="        return self.follows is None and not self.weightless\n",
        new="        return self.follows is None\n",
        red=("tests/unit/test_weightless.py::test_a_weightless_topic_unbalances_nobody",),
    ),
    Mutant(
        story="a topic without work is grouped with one that has",
        file="faust_assigner/grouper.py",
        old="tuple(classes_of[topic]), topic in weightless\n",
        new="tuple(classes_of[topic]), False\n",
        red=(
            "tests/unit/test_weightless.py::test_a_weightless_topic_is_no_work_of_its_counts_group",
        ),
    ),
    Mutant(
        story="the state of a follower's owner is no copy to its source",
        file="faust_assigner/actives/copies.py",
        old="            found += [_copies(layout, previous, f), _owned(layout, previous, f)]\n",
        new="            found += [_copies(layout, previous, f)]\n",
        red=("tests/property/test_warmth.py::test_a_source_lands_where_its_followers_state_is",),
    ),
    Mutant(
        story="the greedy start of warm moves is taken for the best",
        file="faust_assigner/actives/warm_matching.py",
        old="        if not any(self.room.values()):\n",
        new="        if True:\n",
        red=(_WARM,),
    ),
    Mutant(
        story="a displaced number goes back to an owner who sheds no other in its place",
        file="faust_assigner/actives/warm_matching.py",
        old="        if donor != NOBODY and donor not in asked:\n",
        new="        if False:\n",
        red=(_WARM,),
    ),
    Mutant(
        story="a tiny capacity's balance outweighs racks and owners",
        file="faust_assigner/standbys/board.py",
        old="np.clip(np.floor(load * self._weight[member]), -_STEEPEST, _STEEPEST)",
        new="np.floor(load * self._weight[member])",
        red=(
            "tests/unit/test_invariants_capacity.py::test_any_capacities_give_a_plan_that_keeps_every_promise",
        ),
    ),
    Mutant(
        story="the certificate forgets which arcs total balance closed",
        file="faust_assigner/optimality.py",
        old="        self.more &= more + member == sink\n",
        new="",
        red=("tests/property/test_optimality.py::test_the_certificate_says_what_brute_force_says",),
    ),
    Mutant(
        story="a deal looks at the load before the pair",
        file=_FILL,
        old="burden = (pair << 40) + board.load[peers]",
        new="burden = (board.load[peers] << 40) + pair",
        red=(_DEALT, _DEALT_TWICE),
    ),
    Mutant(
        story="a deal does not look at the load",
        file=_FILL,
        old="burden = (pair << 40) + board.load[peers]",
        new="burden = pair",
        red=(_DEALT,),
    ),
    Mutant(
        story="ties of a deal all fall on the first members",
        file=_FILL,
        old="        peers = np.roll(peers, -int(np.searchsorted(peers, owner)))\n",
        new="",
        red=(_DEALT,),
    ),
    Mutant(
        story="the rest of a deal goes to the most burdened",
        file=_FILL,
        old='            counts[np.argsort(burden, kind="stable")[:extra]] += 1\n            return counts',
        new='            counts[np.argsort(-burden, kind="stable")[:extra]] += 1\n'
        "            return counts",
        red=(_DEALT, _DEALT_TWICE),
    ),
    Mutant(
        story="a deal looks at the load before the days a rack dies",
        file=_FILL,
        old="reversed(terms) if shares.lopsided else terms",
        new="terms if shares.lopsided else reversed(terms)",
        red=(f"{_TIES}a_deal_with_racks_looks_at_the_days_a_rack_dies_before_the_load",),
    ),
    Mutant(
        story="with racks a pair above its share counts for nothing",
        file=_FILL,
        old="(np.clip(pair + counts - due, 0, 1 << 10) << 48) + ",
        new="",
        red=(f"{_TIES}a_deal_with_racks_looks_at_the_pair_before_the_days_a_rack_dies",),
    ),
    Mutant(
        story="a refill looks at the load before the excess",
        file=_REFILL,
        old="burden = (over << 40) + (board.load[peers] << 16) + np.minimum(pair, 0xFFFF)",
        new="burden = (board.load[peers] << 40) + (over << 16) + np.minimum(pair, 0xFFFF)",
        red=(_REFILLED,),
    ),
    Mutant(
        story="a refill looks at the pair before the load",
        file=_REFILL,
        old="burden = (over << 40) + (board.load[peers] << 16) + np.minimum(pair, 0xFFFF)",
        new="burden = (over << 40) + (pair << 16) + np.minimum(board.load[peers], 0xFFFF)",
        red=(_REFILLED,),
    ),
    Mutant(
        story="a refill of equal loads does not look at the pair",
        file=_REFILL,
        old=" + np.minimum(pair, 0xFFFF)",
        new="",
        red=(f"{_TIES}a_refill_takes_the_smallest_of_pairs_where_loads_are_equal",),
    ),
    Mutant(
        story="ties of a gap all fall on the first members",
        file=_FILL,
        old="            ring = np.roll(everyone, -int(problem.owner[task]) - 1)\n",
        new="            ring = everyone\n",
        red=(f"{_TIES}a_gap_goes_to_the_cheapest_then_round_the_ring",),
    ),
    Mutant(
        story="a gap is filled without a look at the loads",
        file=_FILL,
        old=" + board.balance(1)\n            ring",
        new="\n            ring",
        red=(f"{_TIES}a_gap_goes_to_the_cheapest_then_round_the_ring",),
    ),
    Mutant(
        story="warm copies are kept before the standbys of before",
        file=_FILL,
        old="np.where(problem.copy_was_standby, 1, 2)",
        new="np.where(problem.copy_was_standby, 2, 1)",
        red=(
            f"{_TIES}wishes_are_kept_before_standbys_before_warm_copies_and_the_first_member_of_each",
        ),
    ),
    Mutant(
        story="of equal copies the last member's is kept",
        file=_FILL,
        old="    order = np.lexsort((member, rank, task))\n",
        new="    order = np.lexsort((-member, rank, task))\n",
        red=(
            f"{_TIES}wishes_are_kept_before_standbys_before_warm_copies_and_the_first_member_of_each",
        ),
    ),
    Mutant(
        story="wishes are no more than copies",
        file=_FILL,
        old="np.zeros(wanted, np.int64), np",
        new="np.full(wanted, 3), np",
        red=(
            f"{_TIES}wishes_are_kept_before_standbys_before_warm_copies_and_the_first_member_of_each",
        ),
    ),
    Mutant(
        "an orphan goes to who holds one of its tables",
        _PROMOTION,
        "    best = logs == most[task]\n",
        "    best = logs >= 0\n",
        (f"{_HOLDERS}who_holds_all_of_its_tables_goes_before_who_holds_one",),
    ),
    Mutant(
        "with weights an orphan does not go back to where it was",
        _PROMOTION,
        "m = int(previous.former[t]) if previous.former[t] in who else int(lightest)",
        "m = int(lightest)",
        (f"{_HOLDERS}the_heaviest_go_back_to_where_they_were_or_to_the_lightest",),
    ),
    Mutant(
        "with weights an orphan goes to any holder",
        _PROMOTION,
        "m = int(previous.former[t]) if previous.former[t] in who else int(lightest)",
        "m = int(who[0])",
        (f"{_HOLDERS}the_heaviest_go_back_to_where_they_were_or_to_the_lightest",),
    ),
)
