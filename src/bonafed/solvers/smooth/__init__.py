"""Methods for small smooth problems: Newton, quasi-Newton, least squares, primal-dual."""
