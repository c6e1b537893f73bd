"""What is solved: losses with their bounds, tasks, public facts, parameters over rounds, and whom people trust."""
