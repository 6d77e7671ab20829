"""Models: how a flat vector w and a row of features give predictions."""
