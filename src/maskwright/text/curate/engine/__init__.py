"""How steps are run over shards: here or on a cluster, the same plan and the same bytes."""
