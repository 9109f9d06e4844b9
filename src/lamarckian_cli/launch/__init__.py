"""From a checked configuration to objects and a running job."""
