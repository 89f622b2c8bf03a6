"""From the newest checkpoint to a working copy that Spark can start on."""
