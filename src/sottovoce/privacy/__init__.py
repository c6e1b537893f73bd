"""Privacy: what happened (events), what it costs (accountants), sources of noise, guarantees in words (statement)."""
