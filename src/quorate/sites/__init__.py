"""A run across sites: the side of a site, the side of the server, and what ties them to engines."""
