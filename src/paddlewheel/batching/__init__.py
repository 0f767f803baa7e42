"""Where requests wait and how they are put together for an idle worker."""
