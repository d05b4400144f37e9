"""The first page of the control plane, for people: how everything is doing, kept fresh. It only shows."""

from __future__ import annotations

from headgate.control.dashboard.pages import dashboard_routes, is_logged_in
from headgate.control.dashboard.stores import Stores

__all__ = ["Stores", "dashboard_routes", "is_logged_in"]
