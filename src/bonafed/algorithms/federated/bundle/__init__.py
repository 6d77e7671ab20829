"""The bundle method: cuts of the clients' risks and one program at the server."""
