"""The classic group's rules for KIP-848: changes of topics, and the conversion to a consumer group."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.classic_views import ClassicViews
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CatalogueChanged, ConsumerGroupHeartbeat, FetchOffsets


class ClassicChange(ClassicViews):
    """The rules for events of KIP-848."""

    def _upgrade(self, event: ConsumerGroupHeartbeat) -> None:
        # A late import: each machine can become the other.
        from faust_assigner.coordinator.consumer.upgrade import upgrade

        outcome = upgrade(self, event, self._now)
        if not isinstance(outcome, tuple):
            self._out.append(outcome)
            return
        group, records, effects = outcome

        def saved(error: Code) -> None:
            if error is not Code.NONE:
                self._out.append(answer_absent(event, error))
                return
            self._out.append(fx.ReplaceMachine(group))
            for member in self.roster:
                self._answer_parked(member, Code.REBALANCE_IN_PROGRESS)
            self._out += effects

        self._save_counter += 1
        self._saves[self._save_counter] = saved
        self._out.append(fx.SaveRecords(records, self._save_counter))

    def ask_all_to_rejoin(self) -> None:
        """Begin a rebalance without a request."""
        self._rebalance()

    def _catalogue_changed(self, event: CatalogueChanged) -> None:
        self.catalogue = (
            event.catalogue
        )  # classic members watch topics themselves; the catalogue matters for a conversion

    def _fetch(self, event: FetchOffsets) -> None:
        self._out.append(
            fx.FetchReply(event.token, Code.NONE)
        )  # a classic group allows every reader
