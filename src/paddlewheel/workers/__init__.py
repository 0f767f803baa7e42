"""Worker processes: the loop in the child, the channel to it, the pool that keeps them alive."""
