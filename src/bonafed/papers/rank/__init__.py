"""R. Xiao, Y. Ge, R. Jiang, Y. Yan, *A unified framework for rank-based loss minimization*."""
