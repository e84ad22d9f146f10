"""Runs pciescope on many hosts, keeps their records, and finds the hosts that differ from similar hosts."""

__version__ = "0.1.0"
