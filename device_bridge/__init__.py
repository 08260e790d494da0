"""How the studio reaches devices: a websocket bridge that carries requests down and events up."""
