"""Solvers of the sites' local problems, with a certificate of their error.

:mod:`sottovoce.solvers.local` is the entrance: :class:`~sottovoce.solvers.local.Solver` minimises
the objectives of all nodes and replicates together and certifies ``||gradient|| <= tol C``, on
which privacy guarantees with noise on an answer rely.  Its parts: rows and their grouping
(``local_rows``), the Newton preconditioner (``preconditioner``), L-BFGS iterations (``descent``,
``quasinewton``), and Newton's method for what does not converge (``newton``).
"""
