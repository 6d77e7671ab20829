"""Small problems solved many at once; nothing here knows what a client is."""
