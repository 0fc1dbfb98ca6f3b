"""The transactional ids of a running broker."""

from faust_assigner.broker.transactions.service import TransactionService

__all__ = ["TransactionService"]
