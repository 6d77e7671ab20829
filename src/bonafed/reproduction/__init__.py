"""`bonafed reproduce`: the papers' tables and figures, run and compared."""
