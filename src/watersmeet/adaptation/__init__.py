"""Changing a join while it runs: what is known of partition groups, and policies that choose among them.

Policies suggest and decisions are values; the runtime carries them out.
"""
