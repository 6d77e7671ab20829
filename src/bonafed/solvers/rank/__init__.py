"""The proximal step of a rank-based risk: pooling of adjacent violators, and Newton steps."""
