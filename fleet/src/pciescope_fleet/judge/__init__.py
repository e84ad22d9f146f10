"""Compares each host with similar hosts: which differ, since when, and what those that differ share."""
