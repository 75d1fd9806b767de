"""omq setup and its neighbours: units, configuration, the order of a stop."""
