"""Transactions of producers: what a transactional id may do next, and the one statement that does it.

states        what each request makes of a transactional id, without a database
store         the statements
transactions  requests: read the state, decide, change it if nobody else has meanwhile

There is no coordinator with a memory. Every change is made under the lock of the log, so any gateway serves any
transactional id, and what one has begun another can end.
"""

from headgate.gateway.transactions.settings import TransactionSettings
from headgate.gateway.transactions.states import Asked, Identity, State, Transactional
from headgate.gateway.transactions.transactions import Transactions, check_transactional_id

__all__ = [
    "Asked",
    "Identity",
    "State",
    "TransactionSettings",
    "Transactional",
    "Transactions",
    "check_transactional_id",
]
