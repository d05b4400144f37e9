"""The AT Protocol relay: hosts in, one validated stream out."""
