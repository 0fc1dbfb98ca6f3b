"""Planted bugs of the broker around its groups: connections, turns, founders, topics, the node."""

from __future__ import annotations

from tests.mutants import Mutant

_ALARMS = "faust_assigner/broker/groups/alarms.py"
_TURNS = "faust_assigner/broker/turns.py"
_CONNECTION = "faust_assigner/broker/connection.py"
_SERVER = "faust_assigner/broker/server.py"
_HELD = "faust_assigner/broker/held.py"
_FOUNDERS = "faust_assigner/broker/founders.py"
_GROUPS = "faust_assigner/broker/groups/service.py"
_PACE = "faust_assigner/broker/pace.py"
_WIRE = "faust_assigner/broker/wire.py"
_ANSWERS = "faust_assigner/broker/answers.py"
_LIMITS = "faust_assigner/broker/limits.py"
_SETTINGS = "faust_assigner/broker/settings.py"
_TOPIC_CONFIGS = "faust_assigner/broker/topic_configs.py"
_TOPICS = "faust_assigner/broker/topics.py"
_NODE = "faust_assigner/broker/node.py"
_EMBEDDED = "faust_assigner/broker/embedded.py"
_SERVE = "faust_assigner/broker/serve.py"

_AT_CONNECTION = "tests/unit/broker/test_connection.py::test_"
_AT_REQUESTS = "tests/unit/broker/test_requests.py::test_"
_AT_FOUNDERS = "tests/unit/broker/test_founders.py::test_"
_AT_NODE = "tests/unit/broker/test_node.py::test_"
_AT_PACE = "tests/unit/broker/test_pace.py::test_"
_AT_SETTINGS = "tests/unit/broker/test_settings.py::test_"
_AT_TURNS = "tests/unit/broker/test_turns.py::test_"
_AT_WIRE = "tests/unit/broker/test_wire.py::test_"
_BY_RECORDS = "tests/integration/broker/apis/test_records.py::test_"
_BY_LIMITS = "tests/integration/broker/test_limits.py::test_"
_BY_REFUSALS = "tests/integration/broker/test_refusals.py::test_"

MUTANTS = (
    Mutant(
        "a lane is served until it is empty",
        _TURNS,
        "                    if self._clock() >= end:\n                        break\n",
        "",
        (f"{_AT_TURNS}questions_without_end_leave_each_lane_its_slice",),
    ),
    Mutant(
        "heartbeats are questions",
        _TURNS,
        "    **dict.fromkeys((12, 68), BEATS),",
        "    **dict.fromkeys((68,), BEATS),",
        (f"{_AT_CONNECTION}a_question_is_answered_before_the_beats_that_came_before_it",),
    ),
    Mutant(
        "who waits when a peer fails is forgotten",
        _TURNS,
        "        finally:\n            if any(self._lanes):",
        "        finally:\n            if False:",
        (f"{_AT_CONNECTION}a_question_is_answered_before_the_beats_that_came_before_it",),
    ),
    Mutant(
        "a peer that says its last word is not heard",
        _CONNECTION,
        "        self._has_ended = True\n        return self._is_owed\n",
        "        self._has_ended = True\n        return False\n",
        (f"{_AT_CONNECTION}a_producer_that_says_its_last_word_and_goes_is_heard",),
    ),
    Mutant(
        "records that wait for the disk are lost with their peer",
        _CONNECTION,
        "        return self._in_lane or (self._pending is not None and self._pending_key == PRODUCE)\n",
        "        return self._in_lane\n",
        (f"{_AT_CONNECTION}a_producer_that_says_its_last_word_and_goes_is_heard",),
    ),
    Mutant(
        "what is said again is answered whatever differs at its end",
        _CONNECTION,
        "again.size and frame.endswith(again.rest) and",
        "again.size and",
        (f"{_AT_CONNECTION}a_request_that_differs_by_one_letter_is_read",),
    ),
    Mutant(
        "what is said again is answered in another version",
        _CONNECTION,
        (
            "        if not (\n"
            "            len(frame) == again.size and frame.endswith(again.rest) and frame.startswith(again.head)\n"
            "        ):"
        ),
        "        if not (len(frame) == again.size and frame.endswith(again.rest) and True):",
        (f"{_AT_CONNECTION}another_version_is_no_repetition",),
    ),
    Mutant(
        "a repeated request gets the first one's correlation id",
        _CONNECTION,
        ".framed(frame[CORRELATION])",
        ".framed(bytes(4))",
        (f"{_AT_CONNECTION}answers_of_a_burst_keep_their_order_and_their_names",),
    ),
    Mutant(
        "one connection is served while it waits for an answer",
        _CONNECTION,
        "        if not (is_busy or self._in_lane) and self._has_frame():",
        "        if not self._in_lane and self._has_frame():",
        (f"{_AT_CONNECTION}nothing_more_of_a_connection_is_served_while_an_answer_is_pending",),
    ),
    Mutant(
        "a negative frame size is waited for",
        _CONNECTION,
        "            if not 0 < size <= self._node",
        "            if not size <= self._node",
        (f"{_BY_LIMITS}a_bad_frame_closes_its_own_connection_and_is_counted",),
    ),
    Mutant(
        "a slow frame is waited for without end",
        _CONNECTION,
        (
            "        elif (\n"
            "            self._incomplete_since is not None\n"
            "            and now - self._incomplete_since > self._server.frame_timeout_s\n"
            "        ):"
        ),
        "        elif False:",
        (f"{_BY_LIMITS}a_slow_frame_is_given_up",),
    ),
    Mutant(
        "a silent peer keeps its connection",
        _CONNECTION,
        "        elif now - self._last_active > idle_s:",
        "        elif False:",
        (f"{_BY_LIMITS}a_silent_connection_ends_after_the_idle_time",),
    ),
    Mutant(
        "a failed acks=0 produce is answered",
        _CONNECTION,
        "            if header.api_key == PRODUCE and request.acks == 0:\n"
        "                return CLOSE\n",
        "",
        (
            f"{_AT_CONNECTION}a_producer_without_acknowledgement_learns_of_a_fault_by_its_connection",
        ),
    ),
    Mutant(
        "unsent bytes are never counted down",
        _CONNECTION,
        "            self._node.unsent_bytes += now - self._unsent\n",
        "            self._node.unsent_bytes += max(now - self._unsent, 0)\n",
        (f"{_AT_CONNECTION}what_peers_do_not_take_is_counted_up_and_down",),
    ),
    Mutant(
        "a peer that reads nothing is read on",
        _CONNECTION,
        "        if (waits and much) != self._reading_paused:",
        "        if False:",
        (f"{_AT_CONNECTION}a_peer_that_waits_for_an_answer_is_read_only_so_far_ahead",),
    ),
    Mutant(
        "frames that wait for their turn pile up",
        _CONNECTION,
        (
            "        waits = (\n"
            "            is_busy or self._in_lane\n"
            "        )  # frames that come faster than their turns must not pile up either"
        ),
        "        waits = is_busy  # frames that come faster than their turns must not pile up either",
        (f"{_AT_CONNECTION}a_peer_that_sends_faster_than_its_turns_come_is_held_back",),
    ),
    Mutant(
        "a place once taken by an address is never free again",
        _SERVER,
        "        self._per_address[connection.address] -= 1\n",
        "        pass\n",
        (f"{_BY_LIMITS}one_address_gets_only_so_many_connections",),
    ),
    Mutant(
        "half-sent frames are not counted",
        _SERVER,
        "        for oldest in self._held.hold(connection, size):",
        "        for oldest in self._held.hold(connection, 0):",
        (f"{_AT_CONNECTION}half_sent_frames_over_the_budget_cost_the_oldest_its_connection",),
    ),
    Mutant(
        "what was answered is lost at a stop",
        _SERVER,
        "            connection.finish()\n        deadline",
        "            connection.abort()\n        deadline",
        (f"{_AT_REQUESTS}what_was_answered_before_a_stop_is_delivered",),
    ),
    Mutant(
        "the newest holder goes",
        _HELD,
        "oldest = next(iter(self._sizes))",
        "oldest = next(reversed(self._sizes))",
        (
            f"{_AT_PACE}who_holds_bytes_for_longest_goes_first",
            f"{_AT_CONNECTION}half_sent_frames_over_the_budget_cost_the_oldest_its_connection",
        ),
    ),
    Mutant(
        "a group that goes gives no place back",
        _FOUNDERS,
        "        self._standing[entry.address] -= 1\n",
        "",
        (f"{_AT_FOUNDERS}ids_nobody_came_back_for_make_room_for_their_own_address",),
    ),
    Mutant(
        "offsets alone may fill the broker",
        _FOUNDERS,
        "        if is_simple:\n            simple",
        "        if False:\n            simple",
        (f"{_AT_FOUNDERS}a_flood_of_offset_commits_leaves_room_for_members_of_the_same_address",),
    ),
    Mutant(
        "one address may take all",
        _FOUNDERS,
        "            left -= self._standing[address]\n",
        "            pass\n",
        (f"{_AT_FOUNDERS}a_flood_of_members_leaves_room_for_other_addresses",),
    ),
    Mutant(
        "one connection may take its address's part",
        _FOUNDERS,
        "left > 0 and (founder is None or founder.founded < left)",
        "left > 0",
        (f"{_AT_FOUNDERS}one_connection_leaves_room_for_others_of_its_address",),
    ),
    Mutant(
        "a group that holds offsets makes room",
        _GROUPS,
        "if group is not None and group.is_unproven and not self._has_offsets(group_id):",
        "if group is not None and group.is_unproven:",
        (f"{_AT_FOUNDERS}a_flood_of_offset_commits_leaves_room_for_members_of_the_same_address",),
    ),
    Mutant(
        "a heartbeat to a group that is gone is calm",
        _GROUPS,
        "        (reply,) = (self._unknown(group_id, event),) if group is None else self._step(group, event)\n",
        (
            "        if group is None:\n"
            "            return Code.NONE\n"
            "        (reply,) = self._step(group, event)\n"
        ),
        (f"{_AT_CONNECTION}a_request_that_differs_by_one_letter_is_read",),
    ),
    Mutant(
        "an answer may grow without end",
        _PACE,
        "        if self._bytes > MAX_ANSWER_BYTES:",
        "        if False:",
        (f"{_AT_PACE}an_answer_has_so_many_bytes_and_no_more",),
    ),
    Mutant(
        "a long request never gives the loop away",
        _PACE,
        "        if time.monotonic() - self._slice_since < SLICE_S:",
        "        if True:",
        (f"{_AT_PACE}a_long_handler_gives_the_loop_away_after_each_slice",),
    ),
    Mutant(
        "a place in the line is never given back",
        _PACE,
        "            self._line.places.release()\n",
        "            pass\n",
        (f"{_AT_PACE}few_long_handlers_are_under_way_at_a_time_and_the_others_follow",),
    ),
    Mutant(
        "unknown tagged fields stay in",
        _WIRE,
        "        if len(kept) < count:",
        "        if False:",
        (f"{_AT_WIRE}unknown_tagged_fields_are_ignored_as_the_protocol_demands",),
    ),
    Mutant(
        "long strings are taken",
        _WIRE,
        "(width == 2 and length > MAX_STRING_BYTES)",
        "False",
        (f"{_BY_REFUSALS}a_string_no_old_answer_could_carry_is_refused_at_once",),
    ),
    Mutant(
        "a null list is an empty one",
        _WIRE,
        "        if count < 0 and not may_be_null:",
        "        if False:",
        (f"{_BY_REFUSALS}null_where_a_list_belongs_is_an_invalid_request",),
    ),
    Mutant(
        "a cut moves what stands before it",
        _WIRE,
        "        pieces += (frame[position:start], kept)",
        "        pieces += (frame[:start], kept)",
        (f"{_AT_NODE}several_cuts_leave_everything_else_in_its_place",),
    ),
    Mutant(
        "opaque bytes are written out of order",
        _ANSWERS,
        "                self._done += (bytes(self._open), *data.parts)\n",
        "                self._done += (*data.parts, bytes(self._open))\n",
        (f"{_BY_RECORDS}fetch_by_name_and_by_id_gives_the_same_bytes",),
    ),
    Mutant(
        "a long answer counts as short",
        _ANSWERS,
        "                waiting.extend(value)\n        if elements",
        "                pass\n        if elements",
        (f"{_AT_NODE}elements_of_inner_lists_count",),
    ),
    Mutant(
        "a topic may be called as the folder above",
        _LIMITS,
        '    if name in (".", ".."):',
        '    if name == ".":',
        (f"{_AT_SETTINGS}illegal_topic_names",),
    ),
    Mutant(
        "a group id may be a novel",
        _LIMITS,
        "len(group_id.encode()) <= MAX_GROUP_ID",
        "True",
        (f"{_BY_LIMITS}a_long_group_id_is_refused",),
    ),
    Mutant(
        "the wildcard is advertised",
        _SETTINGS,
        " or found[1] in WILDCARDS:",
        ":",
        (f"{_AT_NODE}an_address_nobody_can_connect_to_is_not_advertised",),
    ),
    Mutant(
        "a batch larger than a frame may be allowed",
        _SETTINGS,
        "        if self.message_max_bytes > self.socket_request_max_bytes:",
        "        if False:",
        (f"{_AT_SETTINGS}settings_that_contradict_each_other_are_refused",),
    ),
    Mutant(
        "retention.ms of the broker does not reach topics",
        _TOPIC_CONFIGS,
        '        "retention.ms": str(settings.log_retention_ms),\n',
        "",
        (f"{_AT_SETTINGS}the_defaults_of_topics_pass_their_own_checks",),
    ),
    Mutant(
        "any cleanup policy will do",
        _TOPIC_CONFIGS,
        '<= {"delete", "compact"}',
        "is not None",
        (f"{_AT_SETTINGS}topic_configs_are_checked_by_name_and_value",),
    ),
    Mutant(
        "a deleted topic's id is found",
        _TOPICS,
        "        del self._names[topic.topic_id]\n",
        "        pass\n",
        (f"{_AT_NODE}the_id_of_a_deleted_topic_finds_no_topic_that_took_its_name",),
    ),
    Mutant(
        "metadata of a grown topic stays as it was",
        _TOPICS,
        "        self._partitions += count - have\n        self._changed(topic.name)\n",
        "        self._partitions += count - have\n",
        (f"{_AT_NODE}whatever_metadata_shows_raises_the_version",),
    ),
    Mutant(
        "a deleted topic's partitions count for ever",
        _TOPICS,
        "        self._partitions -= len(topic.partitions)\n",
        "",
        (f"{_AT_NODE}partitions_of_deleted_topics_make_room",),
    ),
    Mutant(
        "a topic that is only validated is created",
        _TOPICS,
        "        if validate_only:\n            return Topic(name, topic_id, [], dict(configs))\n",
        "",
        (f"{_AT_NODE}whatever_metadata_shows_raises_the_version",),
    ),
    Mutant(
        "new settings are gone at the next start",
        _TOPICS,
        "            self._save(topic.name, topic.topic_id, len(topic.partitions), configs)\n",
        "",
        (f"{_AT_NODE}settings_of_a_topic_are_there_after_a_start",),
    ),
    Mutant(
        "readers wait on for a deleted topic",
        _TOPICS,
        "        for log in topic.partitions:\n            log.close()\n",
        "",
        (f"{_AT_NODE}whoever_waits_for_a_deleted_topic_is_woken",),
    ),
    Mutant(
        "producer ids begin anew at each start",
        _NODE,
        '        first = struct.unpack(">q", saved)[0] if saved else 0\n',
        "        first = 0\n",
        (f"{_AT_NODE}producer_ids_are_never_given_twice_over_a_start",),
    ),
    Mutant(
        "an alarm rings at its old time",
        _ALARMS,
        "armed[0] <= when_ms",
        "True",
        (f"{_AT_NODE}an_alarm_that_is_due_earlier_rings_earlier",),
    ),
    Mutant(
        "compacted topics lose records by age",
        _NODE,
        '            deletes = "delete" in',
        '            deletes = True or "delete" in',
        (f"{_AT_NODE}topics_without_delete_keep_every_record_whatever_their_age",),
    ),
    Mutant(
        "a tick comes before what its members have said already",
        _ALARMS,
        "        self.hear_first(lambda: self._heard(key))\n",
        "        self._heard(key)\n",
        (
            "tests/unit/broker/test_connection.py"
            "::test_who_spoke_in_time_is_not_thrown_out_because_others_are_read_first",
        ),
    ),
    Mutant(
        "a call that waits for what came is not put into every lane",
        _TURNS,
        "        for lane in range(len(self._lanes)):\n            self.wait(mark, lane)\n",
        "        for _ in self._lanes:\n            self.wait(mark, 0)\n",
        ("tests/unit/broker/test_turns.py::test_what_came_by_now_is_served_before_the_call",),
    ),
    Mutant(
        "alarms of restored groups never ring",
        _ALARMS,
        "        for key, when in self._waiting.items():\n            self.set(key, when)\n",
        "",
        (f"{_AT_NODE}members_that_were_there_before_a_start_are_missed_after_it",),
    ),
    Mutant(
        "a port that is taken leaves the store locked",
        _EMBEDDED,
        "        except BaseException:\n"
        "            node.close()\n"
        "            raise\n"
        "        self._server",
        "        except BaseException:\n            raise\n        self._server",
        (f"{_AT_NODE}a_port_that_is_taken_leaves_the_data_to_the_next_broker",),
    ),
    Mutant(
        "a setting given twice is taken",
        _SERVE,
        "        if name.strip() in given:",
        "        if False:",
        (f"{_AT_SETTINGS}assignments_need_an_equals_sign_and_distinct_names",),
    ),
)
