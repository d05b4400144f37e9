"""An AT Protocol network on loopback: hosts, repositories, and every lie and poison that a relay must refuse."""
