"""What the papers' theorems say, computed: convergence, sample sizes, trade-offs, and the register of claims."""
