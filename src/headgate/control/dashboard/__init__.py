"""The first page of the control plane, for people: how everything is doing, kept fresh. It only shows."""

from __future__ import annotations

from headgate.control.dashboard.pages import address_of, dashboard_routes, is_logged_in
from headgate.control.dashboard.sessions import Attempts, Sessions
from headgate.control.dashboard.stores import Stores

__all__ = ["Attempts", "Sessions", "Stores", "address_of", "dashboard_routes", "is_logged_in"]
