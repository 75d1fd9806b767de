"""Reader services: a parent, its reader processes, and the class that a service is."""
