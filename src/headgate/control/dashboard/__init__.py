"""The pages of the control plane, for people: how everything is doing, kept fresh, and buttons for those who may."""

from __future__ import annotations

from headgate.control.dashboard.pages import Dashboard, address_of
from headgate.control.dashboard.sessions import Attempts
from headgate.control.dashboard.stores import Stores

__all__ = ["Attempts", "Dashboard", "Stores", "address_of"]
