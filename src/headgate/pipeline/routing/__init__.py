"""Each row says where it goes: rules choose, admission allows, breakers protect, lanes send."""
