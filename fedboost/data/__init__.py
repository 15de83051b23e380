"""Tables: where they come from, what a column may hold, how rows are named."""
