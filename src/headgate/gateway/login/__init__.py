"""Login of clients: users of the configuration and of PostgreSQL, and the mechanisms of SASL that prove it."""

from headgate.gateway.login.keys import LEAST_ITERATIONS, Keys
from headgate.gateway.login.logins import Logins
from headgate.gateway.login.sasl import Dialogue
from headgate.gateway.login.users import Users

__all__ = ["LEAST_ITERATIONS", "Dialogue", "Keys", "Logins", "Users"]
