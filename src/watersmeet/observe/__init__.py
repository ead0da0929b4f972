"""What people see of a running query: progress values and their rendering."""
