"""Changing a join while it runs: statistics of partition groups, and policies that choose among them.

Policies suggest, decisions are values, the runtime carries them out.
"""
