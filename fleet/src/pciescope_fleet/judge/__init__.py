"""Compares each host with similar hosts: which differ, since when, and what those that differ share.

`newest` takes each host's newest figures, `groups` says who is compared with whom, `statistics` counts in the engine,
`null` turns distances into p-values and bounds false alarms, `causes` looks for what outliers share. `outliers` puts
them together; `trend` is about a host's own past.
"""
