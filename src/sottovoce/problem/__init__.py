"""Losses with their bounds, tasks, public facts, schedules, and trust."""
