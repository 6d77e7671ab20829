"""What each optional part of a run adds to its training, its result and its folder."""
