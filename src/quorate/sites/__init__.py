"""What runs at the sites of a run and at its server, whichever engine carries the messages."""
